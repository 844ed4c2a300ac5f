//! Certificate authorities that exist only here, and their files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use oneclock_http::rustls::pki_types::pem::PemObject;
use oneclock_http::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use oneclock_http::rustls::server::WebPkiClientVerifier;
use oneclock_http::rustls::{ClientConfig, RootCertStore, ServerConfig};
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) struct Ca {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub(crate) struct Pem {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Ca {
    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn signs(&self, name: &str) -> Pem {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Pem { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).expect("a root");
        roots
    }

    /// Of a client that trusts this one alone.
    pub(crate) fn client(&self) -> ClientConfig {
        ClientConfig::builder().with_root_certificates(self.roots()).with_no_client_auth()
    }

    /// Of a server that shows `pem`; its peers have to show one of this authority if `asks`.
    pub(crate) fn server(&self, pem: &Pem, asks: bool) -> ServerConfig {
        let builder = ServerConfig::builder();
        let builder = if asks {
            let verifier = WebPkiClientVerifier::builder(Arc::new(self.roots())).build().expect("a verifier");
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).expect("a key");
        builder.with_single_cert(vec![pem.der()], key).expect("a server's")
    }
}

impl Pem {
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("a certificate")
    }

    /// Into `NAME.crt` and `NAME.key`.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let files = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        std::fs::write(&files.0, &self.certificate).expect("written");
        std::fs::write(&files.1, &self.key).expect("written");
        files
    }
}

/// Shakes hands with who listens on the loopback interface and calls himself `localhost`, for HTTP/1.1.
pub(crate) async fn shake_hands(port: u16, mut config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let socket = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, socket).await
}

/// What the far side has shown.
pub(crate) fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    let shown = stream.get_ref().1.peer_certificates().expect("a certificate");
    shown.first().expect("one").clone().into_owned()
}
