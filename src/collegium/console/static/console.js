// What all pages of the console share.
"use strict";

const collegium = (() => {
  // Said aloud by screen readers, and only there.
  function say(text) {
    const status = document.getElementById("status");
    if (status && status.textContent !== text) status.textContent = text;
  }

  // What the server refused, in its own words.
  function complain(text) {
    const place = document.getElementById("complaint");
    if (!place) return;
    place.textContent = text;
    place.hidden = !text;
  }
  document.addEventListener("htmx:response:error", (event) => complain((event.detail.ctx?.text ?? "").trim()));
  document.addEventListener("htmx:before:request", () => complain(""));

  // Colours of the style sheet, as they are now: light or dark.
  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  function onColours(change) {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", change);
  }

  // Events from the server, by name. A lost connection is taken up again where it broke; a page that nobody has looked
  // at for minutes lets go of it, since a browser has few for one server.
  const PATIENCE = 5 * 60 * 1000;

  function listen(url, handlers, onState = () => {}) {
    let source = null, ended = false, last = null, timer = null;
    function open() {
      clearTimeout(timer);
      if (source || ended) return;
      const glue = url.includes("?") ? "&" : "?";
      source = new EventSource(last === null ? url : `${url}${glue}after=${encodeURIComponent(last)}`);
      source.onopen = () => onState("connected");
      source.onerror = () => {
        onState("lost");
        // Browsers give up for good where the server answered with an error: ask again ourselves.
        if (source && source.readyState === EventSource.CLOSED) { close(); timer = setTimeout(open, 2000); }
      };
      for (const [name, handle] of Object.entries(handlers)) {
        source.addEventListener(name, (event) => {
          if (event.lastEventId) last = event.lastEventId;
          handle(event.data ? JSON.parse(event.data) : null);
        });
      }
    }
    function close() {
      if (source) source.close();
      source = null;
    }
    document.addEventListener("visibilitychange", () => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(close, PATIENCE);
      else open();
    });
    open();
    return { end() { ended = true; clearTimeout(timer); close(); } };
  }

  return { say, complain, colour, onColours, listen };
})();
