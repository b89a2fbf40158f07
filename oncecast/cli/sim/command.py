"""`oncecast sim`: run scenarios with many seeds, replay a run, and measure the simulator."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from oncecast.cli.connecting import add_option, complain, counted
from oncecast.cli.playback import showing
from oncecast.cli.progress import Progress
from oncecast.cli.sim import papers, recorded, sweep
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.lab.scenarios.scenario import Outcome, Scenario
    from oncecast.simulator.step import Step

SEEDS_MAX = 10_000_000
NODES_MAX = 1_000_000


# Long because it is one table of commands and their options.
def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sim = commands.add_parser("sim", help="run, replay and measure simulations")
    verbs = sim.add_subparsers(title="commands", metavar="COMMAND", required=True)

    verb = verbs.add_parser("list", help="list the scenarios")
    verb.add_argument("--json", action="store_true", help="print one JSON line per scenario")
    verb.set_defaults(run=list_scenarios)

    verb = verbs.add_parser("run", help="run a scenario once per seed")
    add_scenario(verb)
    verb.add_argument(
        "--seeds",
        type=seeds,
        default=range(10),
        metavar="A..B",
        help="first and last seed, or a single seed (default: 0..9)",
    )
    verb.add_argument(
        "--jobs",
        type=positive,
        default=os.cpu_count() or 1,
        help="number of parallel processes (default: one per core)",
    )
    verb.add_argument("--json", action="store_true", help="print one JSON line per seed")
    verb.set_defaults(run=run_seeds)

    verb = verbs.add_parser("replay", help="print a run step by step")
    add_scenario(verb)
    verb.add_argument("--seed", type=int, required=True, help="the seed to replay")
    verb.add_argument("--node", help="print only the steps of this node")
    verb.add_argument(
        "--since",
        metavar="SECONDS",
        type=float,
        default=0.0,
        help="print only steps after this many seconds of virtual time",
    )
    verb.add_argument("--last", metavar="N", type=positive, help="print only the last N steps")
    verb.add_argument("--json", action="store_true", help="print one JSON line per step")
    showing.add_options(verb, "play the run in a browser: serve the page, and print its address")
    verb.set_defaults(run=replay)

    verb = verbs.add_parser("bench", help="measure the speed of the simulator")
    verb.add_argument(
        "--nodes",
        type=sizes,
        default=[1000, 10_000],
        metavar="N,M",
        help="numbers of nodes to simulate, separated by commas (default: 1000,10000)",
    )
    verb.add_argument(
        "--repeat", type=positive, default=3, help="number of runs per size (default: 3)"
    )
    verb.add_argument("--json", action="store_true", help="print one JSON line per size")
    verb.set_defaults(run=bench)

    verb = verbs.add_parser(
        "papers",
        help="reproduce experiments from papers and compare the results with the published ones",
    )
    add_option(verb, "--only", "NAME,NAME", "papers to reproduce (default: all)", kind=papers.names)
    verb.add_argument("--nodes", type=positive, help="number of nodes (default: as in the paper)")
    verb.add_argument("--seed", type=int, default=1, help="simulation seed (default: 1)")
    verb.add_argument("--json", action="store_true", help="print one JSON line per table")
    verb.set_defaults(run=papers.repeat)

    sweep.configure(verbs, sizes, seeds)


def add_scenario(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("scenario", metavar="SCENARIO", help="scenario name; see `sim list`")
    verb.add_argument(
        "--nodes",
        type=positive,
        help="number of nodes, or the maximum if the seed chooses it (default: as in the scenario)",
    )


def positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= NODES_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {NODES_MAX}")
    return int(text)


def sizes(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    try:
        span = range(int(first), int(last if dots else first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a range of seeds; use one seed, or a range such as 0..99"
        ) from None
    if not span:
        raise argparse.ArgumentTypeError(
            f"{text}: the last seed is lower than the first; swap them"
        )
    if span.stop - span.start > SEEDS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: too many seeds (limit {SEEDS_MAX:,}); use fewer")
    return span


def find(args: argparse.Namespace) -> Scenario | None:
    from oncecast.lab.scenarios.catalogue import SCENARIOS

    scenario = SCENARIOS.get(args.scenario)
    if scenario is None:
        known = ", ".join(sorted(SCENARIOS))
        complain(f"scenario {args.scenario!r} does not exist; choose one of {known}")
    elif args.nodes is not None:
        require(scenario, args.nodes)
    return scenario


def require(scenario: Scenario, nodes: int) -> None:
    if nodes < scenario.nodes_min:
        complain(f"{scenario.name} needs at least {scenario.nodes_min} nodes; raise --nodes")
        raise SystemExit(ExitStatus.USAGE)


def list_scenarios(args: argparse.Namespace) -> int:
    from oncecast.lab.scenarios.catalogue import SCENARIOS

    width = max(map(len, SCENARIOS))
    for scenario in SCENARIOS.values():
        if args.json:
            write({"name": scenario.name, "nodes": scenario.nodes, "about": scenario.about})
        else:
            print(f"{scenario.name:<{width}} {scenario.nodes:>4} nodes   {scenario.about}")
    return ExitStatus.OK


def run_seeds(args: argparse.Namespace) -> int:
    scenario = find(args)
    if scenario is None:
        return ExitStatus.NOT_FOUND
    failed = events = 0
    seconds = 0.0
    with Progress(f"{scenario.name}", len(args.seeds)) as progress:
        for outcome in outcomes(scenario.name, args.nodes, args.seeds, args.jobs):
            progress.step(f"{failed} failed" if failed else "")
            failed += not outcome.ok
            events += outcome.events
            seconds += outcome.seconds
            if args.json:
                write({**as_dict(outcome), "replay": outcome.replay})
            elif not outcome.ok:
                report(outcome)
    if not args.json:
        seeds_run = counted(len(args.seeds), "seed")
        verdict = f"{failed} of {seeds_run} FAILED" if failed else "all passed"
        print(f"{scenario.name}: {seeds_run}, {events:,} events in {seconds:.1f} s: {verdict}")
    return ExitStatus.FAILURE if failed else ExitStatus.OK


def outcomes(name: str, nodes: int | None, span: range, jobs: int) -> Iterator[Outcome]:
    jobs = min(jobs, len(span))
    if jobs == 1:
        yield from (run_one((name, nodes, seed)) for seed in span)
        return
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(jobs) as pool:
        tasks = ((name, nodes, seed) for seed in span)
        yield from pool.map(run_one, tasks, chunksize=max(1, min(16, len(span) // (4 * jobs))))


def run_one(task: tuple[str, int | None, int]) -> Outcome:
    from oncecast.lab.scenarios.catalogue import SCENARIOS
    from oncecast.lab.scenarios.scenario import run

    name, nodes, seed = task
    return run(SCENARIOS[name], seed, nodes)


def report(outcome: Outcome) -> None:
    print(f"seed {outcome.seed} at {outcome.virtual_seconds:.6f} s: {outcome.violation}")
    print(f"  replay: {outcome.replay}")
    show_drawn(outcome)


def show_drawn(outcome: Outcome) -> None:
    for name, value in outcome.drawn.items():
        print(f"  {name}: {value}")


def replay(args: argparse.Namespace) -> int:
    scenario = find(args)
    if scenario is None:
        return ExitStatus.NOT_FOUND
    if args.web or args.html is not None:
        return recorded.play(args, scenario)
    from collections import deque

    from oncecast.lab.scenarios.scenario import run

    kept: deque[Step] = deque(maxlen=args.last)
    seen: dict[str, None] = {}
    printer: Callable[[Step], None] = write_step if args.json else print_step

    def show(step: Step) -> None:
        seen[step.node] = None
        if step.time >= args.since and args.node in (None, step.node):
            if args.last is None:
                printer(step)
            else:
                kept.append(step)

    # Copy the effects: the next step reuses the list.
    keep_copy = args.last is not None
    outcome = run(scenario, args.seed, args.nodes, show=copying(show) if keep_copy else show)
    for step in kept:
        printer(step)
    if args.node is not None and args.node not in seen:
        complain(f"node {args.node!r} does not exist; choose one of {', '.join(seen)}")
        return ExitStatus.NOT_FOUND
    if not args.json:
        print(f"trace {outcome.trace}, {outcome.events:,} events, {outcome.virtual_seconds:g} s")
        if outcome.ok:
            show_drawn(outcome)
        else:
            report(outcome)
    return ExitStatus.OK if outcome.ok else ExitStatus.FAILURE


def copying(show: Callable[[Step], None]) -> Callable[[Step], None]:
    from msgspec.structs import replace

    return lambda step: show(replace(step, effects=tuple(step.effects)))


def print_step(step: Step) -> None:
    from oncecast.simulator.transcript import lines

    print("\n".join(lines(step)))


def write_step(step: Step) -> None:
    from oncecast.simulator.transcript import described, subject

    write(
        {
            "time": step.time,
            "node": step.node,
            "input": step.kind,
            "subject": subject(step),
            "effects": [described(effect) for effect in step.effects],
        }
    )


def bench(args: argparse.Namespace) -> int:
    from oncecast.lab.bench import measure
    from oncecast.lab.scenarios.shuffle import SHUFFLE

    require(SHUFFLE, min(args.nodes))
    if not args.json:
        print(f"{'nodes':>8} {'events/s':>12} {'x real time':>12} {'traced':>8}   shuffle")
    for nodes in args.nodes:
        with Progress(f"{nodes} nodes", 2 * args.repeat) as progress:
            figures = measure(nodes, args.repeat, progress.step)
        if args.json:
            write(figures)
        else:
            print(
                f"{nodes:>8,} {figures['events_per_second']:>12,.0f} "
                f"{figures['times_real_time']:>11.1f}x {figures['times_real_time_traced']:>7.1f}x"
                f"   {figures['events_per_node_second']:.1f} events per node per second"
            )
    return ExitStatus.OK


def as_dict(outcome: Outcome) -> dict[str, Any]:
    import msgspec

    return msgspec.structs.asdict(outcome)


def write(line: dict[str, Any]) -> None:
    import msgspec

    print(msgspec.json.encode(line).decode())
