"use strict";
// Unpacks the page's data and starts its parts. Failures are shown on the page.

async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function start() {
  const figures = await unpacked("figures-data");
  drawFigures(figures);
  if (document.getElementById("filters")) new SampleBrowser(await unpacked("samples-data"), figures.history);
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => {
  const place = document.getElementById("failure");
  place.hidden = false;
  place.textContent = typeof DecompressionStream === "undefined"
    ? "This browser is too old for this page: it lacks DecompressionStream."
    : `This page could not be built: ${error.message}`;
  throw error;
});
