// The hospital's page: asks for its parts again when something at the site has changed.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const live = document.getElementById("live");
  if (!live) return;
  let first = true;
  const refresh = () => htmx.ajax("GET", "/live", { target: "#live", swap: "innerHTML" });
  collegium.listen("/events", {
    changed: (what) => {
      if (!first) refresh().then(() => collegium.say(what.waiting ? `${what.waiting} decisions wait` : "Updated"));
      first = false;
    },
  }, (state) => { document.body.dataset.state = state; });
});
