// Dialogs and notices. The browser's own <dialog> keeps the focus inside and closes on Escape.

import { h, icon, put } from "./dom.js";

/**
 * Open a dialog with a form. `act(form)` runs on submit: it may raise an error, which is shown.
 * Return a promise of what `act` returned, or undefined if the user cancelled.
 */
export function ask({ title, body, action, act, danger = false, wide = false }) {
  const fault = h("div", { class: "fault", role: "alert" });
  const submit = h("button", { class: danger ? "danger" : "primary" }, action);
  const cancel = h("button", { type: "button", class: "quiet" }, "Cancel");
  const form = h(
    "form",
    { method: "dialog", novalidate: false },
    h("header", {}, h("h2", { id: "dialog-title" }, title)),
    h("div", { class: "dialog-body" }, body, fault),
    h("footer", {}, cancel, submit),
  );
  const dialog = h("dialog", { class: wide ? "wide" : "", "aria-labelledby": "dialog-title" }, form);
  document.body.append(dialog);
  return new Promise((done) => {
    let result;
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(result);
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      submit.disabled = true;
      put(fault);
      try {
        result = (await act(form)) ?? true;
        dialog.close();
      } catch (error) {
        put(fault, trouble(error));
        submit.disabled = false;
      }
    });
    dialog.showModal();
    (form.querySelector("[autofocus]") ?? form.querySelector("input, textarea, select") ?? (danger ? cancel : submit)).focus();
  });
}

/** Ask before a destructive action. With `word`, the user has to type it. */
export function confirm({ title, text, action, act, word }) {
  const typed = word && h("input", { type: "text", autocomplete: "off", spellcheck: "false", autofocus: true, "aria-label": `Type ${word}` });
  const body = [
    h("p", {}, text),
    word && h("label", { class: "field" }, h("span", {}, "Type ", h("bdi", { class: "mono strong" }, word), " to confirm"), typed),
  ];
  return ask({
    title, body, action, danger: true,
    act: () => {
      if (word && typed.value !== word) throw new Error(`the text differs from ${word}`);
      return act();
    },
  });
}

/** Return an error as an element: the message, and the remedy that the API gives. */
export function trouble(error, retry) {
  return h(
    "div",
    { class: "trouble" },
    h("p", { class: "trouble-message" }, sentence(error.message)),
    error.remedy && h("p", { class: "trouble-remedy" }, sentence(error.remedy)),
    retry && h("button", { class: "quiet", onclick: retry }, "Try again"),
  );
}

/** Start with a capital letter and end with a full stop, as our messages do neither. */
function sentence(text) {
  const whole = String(text ?? "").trim();
  return whole && whole[0].toUpperCase() + whole.slice(1) + (/[.!?]$/.test(whole) ? "" : ".");
}

const NOTICE_MS = 5000;
let notices;

/** Show a notice for a few seconds. Screen readers announce it. */
export function notify(text) {
  notices ??= document.body.appendChild(h("div", { class: "notices", role: "status" }));
  const close = h("button", { class: "icon-button", "aria-label": "Close this notice" }, icon("close"));
  const notice = h("div", { class: "notice" }, h("span", {}, text), close);
  close.addEventListener("click", () => notice.remove());
  notices.append(notice);
  while (notices.childElementCount > 3) notices.firstChild.remove();
  setTimeout(() => notice.remove(), NOTICE_MS);
}
