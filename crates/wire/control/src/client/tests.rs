use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use crate::http::{Limits, serve};

/// A server at this address that counts its connections.
async fn server(at: &str, connections: &Arc<AtomicUsize>) -> (SocketAddr, JoinHandle<Infallible>) {
    let listener = TcpListener::bind(at).await.unwrap();
    let at = listener.local_addr().unwrap();
    let counted = connections.clone();
    let seven = || async { Json(7) };
    let router = move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Router::new().route("/", get(seven).put(seven).post(seven))
    };
    let limits = Limits { connections_max: 64, life_max: Duration::from_secs(600) };
    (at, tokio::spawn(async move { serve(listener, limits, None, router).await }))
}

#[tokio::test]
async fn calls_that_may_arrive_twice_share_a_connection_that_is_kept() {
    let connections = Arc::default();
    let (at, _) = server("127.0.0.1:0", &connections).await;
    let client = ControlClient::new(at, None);
    let kept = client.clone().keeping_connection();
    for _ in 0..5 {
        assert_eq!(kept.clone().with_timeout(Duration::from_secs(60)).get::<u32>("/").await, Ok(7));
        assert_eq!(kept.send::<u32>(Method::PUT, "/", &1).await, Ok(7));
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    assert_eq!(kept.send::<u32>(Method::POST, "/", &1).await, Ok(7));
    assert_eq!(connections.load(Ordering::Relaxed), 2);
    client.get::<u32>("/").await.unwrap();
    client.get::<u32>("/").await.unwrap();
    assert_eq!(connections.load(Ordering::Relaxed), 4, "no connection is kept by default");
}

#[tokio::test]
async fn a_kept_connection_that_the_server_has_cut_is_replaced() {
    let connections = Arc::default();
    let (at, serving) = server("127.0.0.1:0", &connections).await;
    let kept = ControlClient::new(at, None).keeping_connection();
    assert_eq!(kept.get::<u32>("/").await, Ok(7));
    serving.abort();
    assert!(serving.await.is_err());
    server(&at.to_string(), &connections).await;
    assert_eq!(kept.get::<u32>("/").await, Ok(7));
    assert_eq!(connections.load(Ordering::Relaxed), 2);
}
