//! An echo server and client by Tokio: `echo serve ADDRESS`, in threads that share a set, and `echo ADDRESS BYTES`, in
//! one thread.
use std::{env, io};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

async fn serve(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let (mut from, mut to) = stream.split();
            tokio::io::copy(&mut from, &mut to).await
        });
    }
}

async fn once(address: String, seed: u8, size: usize) -> io::Result<()> {
    let sent: Vec<u8> = (0..size).map(|i| (i * 7 % 251) as u8 ^ seed).collect();
    let (mut from, mut to) = TcpStream::connect(address).await?.into_split();
    let out = sent.clone();
    let writer = tokio::spawn(async move { to.write_all(&out).await });
    let mut got = vec![0; size];
    from.read_exact(&mut got).await?;
    writer.await.unwrap()?;
    assert!(got == sent, "other bytes came back");
    Ok(())
}

fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().collect();
    if args[1] == "serve" {
        return Builder::new_multi_thread().worker_threads(3).enable_io().build()?.block_on(serve(&args[2]));
    }
    Builder::new_current_thread().enable_io().build()?.block_on(async {
        let size = args[2].parse().unwrap();
        let clients: Vec<_> = (0..4).map(|seed| tokio::spawn(once(args[1].clone(), seed, size))).collect();
        for c in clients {
            c.await.unwrap()?;
        }
        println!("4 connections, {size} bytes there and back");
        Ok(())
    })
}
