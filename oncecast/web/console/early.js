// Apply the stored theme before the first paint, so that the page does not flash.
try {
  const theme = localStorage.getItem("oncecast-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage, the page follows the system.
}
