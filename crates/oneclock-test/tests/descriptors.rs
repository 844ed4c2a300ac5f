//! Descriptors belong to the process: these checks stand alone in theirs, whatever runs the tests.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is tests")]

use oneclock_test::caller::{Caller, How};
use oneclock_test::{Baseline, Probe, Protocol, Reason, peer};

#[tokio::test]
async fn every_socket_of_a_peer_and_of_its_callers_is_closed_again() {
    let before = Baseline::take();
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let peer = peer::stall(protocol).unwrap();
        match protocol {
            Protocol::Http1 => {
                for how in [How::Close, How::Reset, How::Pipelined, How::WithUnreadUpload(1 << 20)] {
                    Caller::h1(peer.addr()).post("/", "").leave(how).await.unwrap();
                }
                let gone = Caller::h1(peer.addr()).get("/").leave(How::StopsReading).await.unwrap();
                assert!(before.back_now().is_err(), "it keeps its socket");
                drop(gone);
            }
            Protocol::Http2 => {
                let caller = Caller::h2(peer.addr()).connect().await.unwrap();
                caller.get("/").send().await.unwrap().reset(Reason::CANCEL);
                caller.leave().await;
                let caller = Caller::h2(peer.addr()).connect().await.unwrap();
                let _call = caller.get("/").send().await.unwrap();
                caller.reset().await.unwrap();
                let frozen = Caller::h2(peer.addr()).connect().await.unwrap().freeze().await;
                drop(frozen);
                drop(Caller::h2(peer.addr()).connect().await.unwrap());
            }
        }
        drop(peer);
        before.assert_back().await;
    }
    drop((peer::refuse().unwrap(), peer::accepts_never().unwrap(), peer::connect_hangs().await.unwrap()));
    drop(Probe::new().enter());
    before.assert_back().await;

    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let leaked = before.back_now().expect_err("the socket is open");
    assert_eq!(leaked.files.len(), 1, "{leaked}");
    assert!(leaked.files[0].starts_with("socket:["), "{leaked}");
    drop(socket);
    assert_eq!(before.back_now(), Ok(()));
}
