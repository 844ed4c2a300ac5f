//! A certificate authority that exists only here, and configurations of both sides.

use std::sync::{Arc, LazyLock};

use oneclock_http::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use oneclock_http::rustls::server::WebPkiClientVerifier;
use oneclock_http::rustls::{ClientConfig, RootCertStore, ServerConfig};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};

struct Ca {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

static OURS: LazyLock<Ca> = LazyLock::new(|| Ca::named("ours"));

/// Another one, of which our peers know nothing.
static THEIRS: LazyLock<Ca> = LazyLock::new(|| Ca::named("theirs"));

impl Ca {
    fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(params, key) }
    }
}

/// What a server or a client shows.
pub(crate) struct Identity(CertificateDer<'static>, PrivateKeyDer<'static>);

fn identity(ca: &Ca, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Identity {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &ca.issuer).unwrap();
    Identity(certificate.into(), PrivateKeyDer::Pkcs8(key.serialize_der().into()))
}

/// For who listens on the loopback interface.
pub(crate) fn loopback() -> Identity {
    identity(&OURS, "127.0.0.1", |_| {})
}

pub(crate) fn expired() -> Identity {
    identity(&OURS, "127.0.0.1", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    })
}

pub(crate) fn of_somebody_else() -> Identity {
    identity(&OURS, "elsewhere", |_| {})
}

pub(crate) fn of_another_ca() -> Identity {
    identity(&THEIRS, "127.0.0.1", |_| {})
}

fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(OURS.certificate.der().clone()).unwrap();
    roots
}

pub(crate) fn server(Identity(certificate, key): Identity) -> ServerConfig {
    ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap()
}

/// Asks its peers for a certificate; one without any is let in only if `anybody`.
pub(crate) fn server_that_asks(anybody: bool) -> ServerConfig {
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots()));
    let verifier = if anybody { verifier.allow_unauthenticated() } else { verifier }.build().unwrap();
    let Identity(certificate, key) = loopback();
    ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key).unwrap()
}

pub(crate) fn client() -> ClientConfig {
    ClientConfig::builder().with_root_certificates(roots()).with_no_client_auth()
}

pub(crate) fn client_that_shows(Identity(certificate, key): Identity) -> ClientConfig {
    ClientConfig::builder().with_root_certificates(roots()).with_client_auth_cert(vec![certificate], key).unwrap()
}
