// stream.js serve PORT: an echo server by net. stream.js ADDRESS PORT FILE: 8 connections through which the file is
// piped and compared when it is back; the end of one direction must pass through.
const net = require("net"), fs = require("fs");
const [host, port, file] = process.argv.slice(2);
if (host === "serve") {
  net.createServer({ allowHalfOpen: true }, (s) => s.pipe(s)).listen(Number(port));
} else {
  const sent = fs.readFileSync(file);
  let left = 8;
  for (let i = 0; i < 8; i++) {
    const s = net.connect({ host, port, allowHalfOpen: true }), got = [];
    s.on("data", (d) => got.push(d));
    s.on("end", () => {
      if (!Buffer.concat(got).equals(sent)) throw new Error("other bytes came back");
      if (--left === 0) console.log(`8 connections, ${sent.length} bytes there and back`);
    });
    fs.createReadStream(file).pipe(s);
  }
  process.on("exit", () => { if (left) process.exitCode = 1; });
}
