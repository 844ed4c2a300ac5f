//! Where the session has TLS, its cancels have it too: a server that lets nobody in without it hears them.

use std::pin::Pin;
use std::sync::Arc;

use oneclock::Operation;
use oneclock_postgres::tokio_postgres::config::SslMode;
use oneclock_postgres::tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use oneclock_postgres::{Pool, Socket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, SignatureScheme};

use crate::support::{Database, at_rest, ms, patient, running, until};

#[tokio::test]
async fn d3_a_cancel_goes_through_the_same_tls() {
    let database = Database::new().await;
    let outside = database.outside().await;
    database.pool(|pool| pool).await; // its table
    let mut config = database.config();
    config.ssl_mode(SslMode::Require);
    let admin = database.admin().await;
    let has_tls: String = admin.query_one("SHOW ssl", &[]).await.unwrap().get(0);
    assert_eq!(
        has_tls, "on",
        "this test needs a server with TLS: ssl = on in its postgresql.conf, with any certificate. Debian's has it"
    );
    let pool = Pool::configured(config).size(1).build_with(Rustls::trusting_anybody()).unwrap();
    let op = patient();
    let under_tls = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let row = pool.get_in(&op, "tls").await.unwrap().query_one(under_tls, &[]).await.unwrap();
    assert!(row.get::<_, bool>(0));
    for _ in 0..5 {
        let brief = Operation::begin("brief", ms(300));
        let error = pool.get_in(&brief, "slow").await.unwrap().batch_execute("SELECT pg_sleep(30)").await.unwrap_err();
        assert!(error.ending().is_some(), "{error}");
        at_rest(&pool).await;
        until("the backend idle", async || running(&outside, &database, "pg_sleep").await == 0).await;
    }
    let status = pool.status();
    assert!(status.cancels_sent >= 5, "{status:?}");
    assert_eq!((status.open, status.discarded), (1, 0), "the same connection all the time: {status:?}");
}

// === A connector, as small as it gets ===

#[derive(Clone)]
struct Rustls(TlsConnector);

struct Named(TlsConnector, ServerName<'static>);

struct Stream(tokio_rustls::client::TlsStream<Socket>);

/// The certificate of the tests' server is made by itself.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl Rustls {
    fn trusting_anybody() -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth();
        Self(TlsConnector::from(Arc::new(config)))
    }
}

impl MakeTlsConnect<Socket> for Rustls {
    type Stream = Stream;
    type TlsConnect = Named;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Named, Self::Error> {
        Ok(Named(self.0.clone(), ServerName::try_from(domain.to_owned())?))
    }
}

impl TlsConnect<Socket> for Named {
    type Stream = Stream;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { Ok(Stream(self.0.connect(self.1, socket).await?)) })
    }
}

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
