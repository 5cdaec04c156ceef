"use strict";
// The list of submissions is loaded from scripts beside this one when somebody searches: that works from a disk, too.
(function () {
  const form = document.querySelector(".search");
  const [input, status, list] = [form.querySelector("input"), form.querySelector("[role=status]"), form.querySelector("ul")];
  const MOST = 50;
  let rows = [], loading = null;
  window.found = (more) => { rows = rows.concat(more); };
  function load() {
    const one = (number) => new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = "assets/found-" + number + ".js";
      script.onload = done;
      script.onerror = failed;
      document.head.append(script);
    });
    return Promise.all(Array.from({ length: Number(form.dataset.scripts) }, (_, number) => one(number)));
  }
  async function search() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    history.replaceState(null, "", words.length ? "#q=" + encodeURIComponent(input.value) : location.pathname);
    list.replaceChildren();
    status.textContent = "";
    if (!words.length) return;
    await (loading = loading || load());
    const hits = rows.filter(([, text]) => words.every((word) => text.toLowerCase().includes(word)));
    status.textContent = hits.length + (hits.length === 1 ? " submission" : " submissions") + (hits.length > MOST ? ", the latest " + MOST + " of them:" : "");
    list.replaceChildren(...hits.slice(0, MOST).map(([id, text]) => {
      const [item, link] = [document.createElement("li"), document.createElement("a")];
      link.href = "submissions/" + encodeURIComponent(id) + ".html";
      link.textContent = id;
      item.append(link, " " + text.slice(id.length));
      return item;
    }));
  }
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("input", search);
  if (location.hash.startsWith("#q=")) { input.value = decodeURIComponent(location.hash.slice(3)); search(); }
})();
