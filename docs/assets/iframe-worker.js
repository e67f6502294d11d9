/* The search of the site runs in a worker, which a browser does not start for pages that are opened from a file. There,
   a hidden frame takes its place: same messages, same script, no network. Served pages keep the browser's own worker. */
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.deliver = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      document.body.appendChild(this.frame);
      this.ready = new Promise((resolve) => {
        this.frame.started = resolve;
      });
      const page = this.frame.contentWindow.document;
      page.open();
      page.write(
        "<!doctype html><body>" +
          "<script>self.postMessage = (data) => frameElement.deliver(data);</script>" +
          `<script src="${url}"></script>` +
          "<script>frameElement.started();</script></body>"
      );
      page.close();
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  }
  window.IFrameWorker = IFrameWorker; // the worker's script looks for this name, and then knows where it is
  window.Worker = IFrameWorker;
}
