// Load data again and again while the page is visible.

/**
 * Call `load(signal)` now and then every `seconds`, until `signal` aborts. `onData` gets the result,
 * `onError` the error. A hidden page loads nothing. Return a function that loads at once.
 */
export function poll(seconds, signal, load, onData, onError) {
  let timer;
  let wanted = 0;

  async function turn() {
    clearTimeout(timer);
    const mine = ++wanted;
    if (!document.hidden) {
      try {
        const data = await load(signal);
        if (signal.aborted || mine !== wanted) return;
        onData(data);
      } catch (error) {
        if (signal.aborted || mine !== wanted) return;
        onError(error);
      }
    }
    timer = setTimeout(turn, seconds * 1000);
  }

  const seen = () => document.hidden || turn();
  document.addEventListener("visibilitychange", seen, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  turn();
  return turn;
}
