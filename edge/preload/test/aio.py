"""Python's asyncio: aio.py serve ADDRESS PORT, an echo server, with an HTTP server by aiohttp at the next port, whose
/ echoes what is posted. aio.py ADDRESS PORT: 100 clients of the first, 20 at a time, each byte compared; 100 requests
to the second over connections that are kept."""
import asyncio
import random
import sys

import aiohttp
from aiohttp import web

SIZE = 100_000


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def post(request):
    return web.Response(body=await request.read())


async def serve(address, port):
    app = web.Application()
    app.router.add_post("/", post)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, address, port + 1).start()
    async with await asyncio.start_server(echo, address, port, backlog=200) as server:
        await server.serve_forever()


async def client(address, port, seed):
    sent = random.Random(seed).randbytes(SIZE)
    reader, writer = await asyncio.open_connection(address, port)

    async def send():
        writer.write(sent)
        await writer.drain()
        writer.write_eof()
    sending = asyncio.create_task(send())
    assert await reader.readexactly(SIZE) == sent, "other bytes came back"
    assert await reader.read(1) == b"", "no end of file"
    await sending
    writer.close()


async def request(session, url, seed):
    sent = random.Random(seed).randbytes(SIZE)
    async with session.post(url, data=sent) as r:
        assert await r.read() == sent, "other bytes came back"


async def clients(address, port):
    few = asyncio.Semaphore(20)  # of 100 at once a busy machine decides some too late: they stay with TCP

    async def turn(seed):
        async with few:
            await client(address, port, seed)
    await asyncio.gather(*(turn(i) for i in range(100)))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=20)) as session:
        await asyncio.gather(*(request(session, f"http://{address}:{port + 1}/", i) for i in range(100)))
    print(f"100 connections, {SIZE} bytes there and back; 100 requests")


if sys.argv[1] == "serve":
    asyncio.run(serve(sys.argv[2], int(sys.argv[3])))
else:
    asyncio.run(asyncio.wait_for(clients(sys.argv[1], int(sys.argv[2])), 50))
