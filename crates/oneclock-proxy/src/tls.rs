//! The TLS of a listener and of an upstream, from their files.
//!
//! Decides nothing about TLS; it reads PEM, says which file is to blame, and can tell whether the files say something else. A
//! certificate can be renewed under a listener that stays what it is; another root of its peers makes another listener of it.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use oneclock_core::Name;
use oneclock_http::BoxError;
use oneclock_http::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use oneclock_http::rustls::client::{ResolvesClientCert, Resumption};
use oneclock_http::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use oneclock_http::rustls::pki_types::pem::PemObject;
use oneclock_http::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use oneclock_http::rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use oneclock_http::rustls::sign::CertifiedKey;
use oneclock_http::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
};

use crate::StartFailed;
use crate::config::{Tls, UpstreamTls};
use crate::digest::Digest;

/// The TLS of a listener.
#[derive(Clone, Debug)]
pub(crate) struct Secured {
    pub(crate) config: Arc<ServerConfig>,
    /// What its files say of the peers that it takes; `None` where it asks nobody who he is.
    pub(crate) peers: Option<Digest>,
    identity: Arc<Identity>,
}

/// Who it says it is, in the next handshake.
#[derive(Debug)]
struct Identity(ArcSwap<CertifiedKey>);

/// Takes the certificate that a listener of this process shows.
#[derive(Debug)]
struct Itself {
    identity: Arc<Identity>,
    provider: Arc<CryptoProvider>,
}

/// The TLS of the connections to an upstream, or to the database of a store.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamSecured {
    pub(crate) config: Arc<ClientConfig>,
    /// Of all that its files say.
    pub(crate) digest: Digest,
}

/// Whom a peer of a server trusts, with all that their file says, if they are in one.
struct Roots {
    roots: RootCertStore,
    said: Option<Vec<u8>>,
}

/// A file, as it was read.
struct Read {
    bytes: Vec<u8>,
}

// === Secured ===

impl Secured {
    /// What the files of a listener say.
    pub(crate) fn of(listener: &Name, tls: &Tls) -> Result<Self, StartFailed> {
        let failed =
            |file: &Path, source| StartFailed::Tls { listener: listener.clone(), file: file.to_owned(), source };
        let builder = ServerConfig::builder();
        let provider = Arc::clone(builder.crypto_provider());
        let (builder, peers) = match &tls.client_ca {
            None => (builder.with_no_client_auth(), None),
            Some(file) => {
                let said = Read::of(file).map_err(|why| failed(file, why))?;
                let roots = said.roots().map_err(|why| failed(file, why))?;
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
                let verifier = verifier.map_err(|why| failed(file, why.into()))?;
                (builder.with_client_cert_verifier(verifier), Some(Digest::of([&said.bytes])))
            }
        };
        let certificates = Read::of(&tls.certificate).and_then(|said| said.certificates());
        let certificates = certificates.map_err(|why| failed(&tls.certificate, why))?;
        let key = Read::of(&tls.key).and_then(|said| said.key()).map_err(|why| failed(&tls.key, why))?;
        // One that belongs to another certificate, when only one of the two files was written so far, is refused here.
        let certified = CertifiedKey::from_der(certificates, key, &provider);
        let certified = certified.map_err(|why| failed(&tls.certificate, why.into()))?;
        let identity = Arc::new(Identity(ArcSwap::from_pointee(certified)));
        let resolver = Arc::clone(&identity);
        Ok(Self { config: Arc::new(builder.with_cert_resolver(resolver)), peers, identity })
    }

    /// From the next handshake on it shows what `renewed` would show. Connections that stand go on, and so do those that
    /// resume a session.
    pub(crate) fn renew(&self, renewed: &Self) {
        self.identity.0.store(renewed.identity.0.load_full());
    }

    /// What a peer within this process trusts: the certificate that the listener shows, whoever it is from and for, and no
    /// other. A renewed one, too.
    pub(crate) fn own_peer(&self) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder();
        let provider = Arc::clone(builder.crypto_provider());
        let itself = Arc::new(Itself { identity: Arc::clone(&self.identity), provider });
        let builder = builder.dangerous().with_custom_certificate_verifier(itself);
        // Where a certificate is asked of it: of one authority for everybody it is as good as any.
        let mut config = builder.with_client_cert_resolver(Arc::clone(&self.identity) as Arc<dyn ResolvesClientCert>);
        config.resumption = Resumption::disabled(); // each time it is to be seen whether it can shake hands
        Arc::new(config)
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

// === Itself ===

impl ServerCertVerifier for Itself {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.identity.0.load().cert.first() == Some(certificate) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

// === UpstreamSecured ===

impl UpstreamSecured {
    /// What the files of an upstream say. Without roots of its own they are those of the web.
    pub(crate) fn of(upstream: &Name, tls: &UpstreamTls) -> Result<Self, StartFailed> {
        let failed = |file: &Path, source| StartFailed::UpstreamTls {
            upstream: upstream.clone(),
            file: file.to_owned(),
            source,
        };
        let mut said = Vec::new();
        let Roots { roots, said: of_roots } = roots(tls.ca.as_deref()).map_err(|(file, why)| failed(file, why))?;
        said.extend(of_roots);
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let config = match &tls.client {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let read = Read::of(certificate).map_err(|why| failed(certificate, why))?;
                let certificates = read.certificates().map_err(|why| failed(certificate, why))?;
                said.push(read.bytes);
                let read = Read::of(key).map_err(|why| failed(key, why))?;
                let private = read.key().map_err(|why| failed(key, why))?;
                said.push(read.bytes);
                let made = builder.with_client_auth_cert(certificates, private);
                made.map_err(|why| failed(certificate, why.into()))?
            }
        };
        Ok(Self { config: Arc::new(config), digest: Digest::of(said) })
    }
}

/// What a peer of a server trusts, and nothing of who it is itself: the roots in `ca`, or those of the web.
pub(crate) fn trusting(ca: Option<&Path>) -> Result<UpstreamSecured, BoxError> {
    let Roots { roots, said } = roots(ca).map_err(|(file, why)| format!("{}: {why}", file.display()))?;
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(UpstreamSecured { config: Arc::new(config), digest: Digest::of(said) })
}

/// The roots in `ca`, or those of the web; else the file and what is wrong with it.
fn roots(ca: Option<&Path>) -> Result<Roots, (&Path, BoxError)> {
    let Some(file) = ca else {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        return Ok(Roots { roots, said: None });
    };
    let read = Read::of(file).map_err(|why| (file, why))?;
    let roots = read.roots().map_err(|why| (file, why))?;
    Ok(Roots { roots, said: Some(read.bytes) })
}

// === Read ===

impl Read {
    fn of(file: &Path) -> Result<Self, BoxError> {
        Ok(Self { bytes: std::fs::read(file)? })
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, BoxError> {
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(&self.bytes).collect::<Result<_, _>>()?;
        if certificates.is_empty() {
            return Err("there is no certificate in it".into());
        }
        Ok(certificates)
    }

    fn roots(&self) -> Result<RootCertStore, BoxError> {
        let mut roots = RootCertStore::empty();
        for root in self.certificates()? {
            roots.add(root)?;
        }
        Ok(roots)
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, BoxError> {
        Ok(PrivateKeyDer::from_pem_slice(&self.bytes)?)
    }
}
