//! The TLS of a listener, from its files.
//!
//! Decides nothing about TLS; it reads PEM, and says which file is to blame.

use std::path::Path;
use std::sync::Arc;

use oneclock_core::Name;
use oneclock_http::BoxError;
use oneclock_http::rustls::pki_types::pem::PemObject;
use oneclock_http::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use oneclock_http::rustls::server::WebPkiClientVerifier;
use oneclock_http::rustls::{RootCertStore, ServerConfig};

use crate::StartFailed;
use crate::config::Tls;

/// What the files say.
pub(crate) fn server(listener: &Name, tls: &Tls) -> Result<ServerConfig, StartFailed> {
    let failed =
        |file: &Path, source: BoxError| StartFailed::Tls { listener: listener.clone(), file: file.to_owned(), source };
    let certificates = read(&tls.certificate).map_err(|why| failed(&tls.certificate, why))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|why| failed(&tls.key, why.into()))?;
    let builder = match &tls.client_ca {
        None => ServerConfig::builder().with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for root in read(file).map_err(|why| failed(file, why))? {
                roots.add(root).map_err(|why| failed(file, why.into()))?;
            }
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
            ServerConfig::builder().with_client_cert_verifier(verifier.map_err(|why| failed(file, why.into()))?)
        }
    };
    builder.with_single_cert(certificates, key).map_err(|why| failed(&tls.certificate, why.into()))
}

fn read(file: &Path) -> Result<Vec<CertificateDer<'static>>, BoxError> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(file)?.collect::<Result<_, _>>()?;
    if certificates.is_empty() {
        return Err("there is no certificate in it".into());
    }
    Ok(certificates)
}
