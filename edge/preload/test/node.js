// node.js serve PORT: an HTTP server.
// node.js ADDRESS PORT: a client that makes 200 requests over connections that it keeps.
const http = require("http");
const [host, port] = process.argv.slice(2);
if (host === "serve") {
  const body = Buffer.alloc(300000, "edge");
  http.createServer((q, r) => {
    if (q.method === "POST") q.pipe(r);
    else r.end(q.url === "/big" ? body : "small");
  }).listen(Number(port));
} else {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
  const sockets = new Set(), began = Date.now();
  let left = 200;
  const ask = () => {
    const i = left--, post = i % 3 === 0, path = i % 3 === 1 ? "/big" : "/";
    if (i <= 0) return;
    const sent = Buffer.alloc(100000, "x" + i);
    const request = http.request({ host, port, agent, path, method: post ? "POST" : "GET" }, (r) => {
      const got = [];
      r.on("data", (d) => got.push(d));
      r.on("end", () => {
        const all = Buffer.concat(got);
        const right = post ? all.equals(sent) : all.length === (path === "/big" ? 300000 : 5);
        if (!right) throw new Error("other bytes came back");
        ask();
      });
    });
    request.on("socket", (s) => sockets.add(s));
    request.end(post ? sent : undefined);
  };
  for (let i = 0; i < 4; i++) ask();
  process.on("exit", () => console.log(`200 requests over ${sockets.size} connections in ${Date.now() - began} ms`));
}
