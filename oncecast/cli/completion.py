"""`oncecast completion`: complete words in bash, zsh and fish.

A shell loads the script of `oncecast completion bash`. At each completion, the script runs
`oncecast completion words`, which prints the possible words, one per line.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncecast.cli.connecting import add_connection, options_of, unicode
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast import blocking

NODE_TIMEOUT = 1.0  # seconds to ask the node for names
NAMES_MAX = 1000

BASH = r"""_oncecast() {
    local word
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$(printf '%q' "$word")")
    done < <(oncecast completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _oncecast oncecast
"""

ZSH = r"""#compdef oncecast
_oncecast() {
    local -a found
    found=("${(@f)$(oncecast completion words -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#}")
    (( $#found )) && compadd -- "${found[@]}" || _files
}
compdef _oncecast oncecast
"""

FISH = r"""function __oncecast
    set --local words (commandline --tokenize --current-process --cut-at-cursor)
    set --append words (commandline --current-token --cut-at-cursor)
    oncecast completion words -- $words[2..] 2>/dev/null
end
complete --command oncecast --arguments '(__oncecast)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "print a script that completes words in your shell"
    completion = commands.add_parser("completion", help=about, description=about)
    verbs = completion.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for shell, script in SCRIPTS.items():
        parser = verbs.add_parser(shell, help=f"print the script for {shell}")
        parser.set_defaults(run=run_script, script=script)
    words = verbs.add_parser("words", help="print the possible words; the scripts run this")
    words.add_argument("words", metavar="WORD", nargs="*", help="words after `oncecast`")
    add_connection(words)
    words.set_defaults(run=run_words, timeout=NODE_TIMEOUT)


def run_script(arguments: argparse.Namespace) -> int:
    print(arguments.script, end="")
    return ExitStatus.OK


def run_words(arguments: argparse.Namespace) -> int:
    """Print the words that can stand where the last given word is."""
    from oncecast.cli.main import build_parser
    from oncecast.cli.shell.words import Completion

    *words, text = arguments.words or [""]
    names = Names(arguments)
    completion = Completion(build_parser(words), names.topics, names.subscriptions, in_shell=False)
    for each in completion.names(words, text):
        if each.isprintable():
            print(each)
    return ExitStatus.OK


class Names:
    """The names that a node knows. If the node does not answer soon, there are none."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments

    def topics(self, prefix: str) -> Iterable[str]:
        from oncecast.errors import OncecastError

        found: list[str] = []
        try:
            with self._connected() as client:
                for view in client.topics(unicode(prefix)):
                    found.append(view.name)
                    if len(found) == NAMES_MAX:
                        break
        except (OncecastError, argparse.ArgumentTypeError):
            return found
        return found

    def subscriptions(self, topic: str) -> Iterable[str]:
        from oncecast.errors import OncecastError

        try:
            with self._connected() as client:
                return [each.name for each in client.describe(topic).subscriptions[:NAMES_MAX]]
        except OncecastError:
            return []

    def _connected(self) -> blocking.Client:
        from oncecast import blocking

        options = options_of(self._arguments, None)
        options |= {"connect_timeout": NODE_TIMEOUT, "timeout": NODE_TIMEOUT}
        return blocking.connect(**options)
