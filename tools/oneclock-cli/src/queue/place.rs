//! Which queue, and how it is opened.
//!
//! Decides that looking opens nothing that changes something, and that a URL, which may have a password in it, is not printed.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};
use clap::Args;
use oneclock_postgres::tokio_postgres::Config;
use oneclock_postgres::tokio_postgres::config::SslMode;
use oneclock_postgres::{PgQueue, Pool, Rustls};
use oneclock_queue::Uncertainty;
use oneclock_queue::nats::Nats;
use oneclock_queue::rabbitmq::RabbitMq;
use percent_encoding::percent_decode_str;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Which queue, and how it is printed.
#[derive(Args)]
pub(super) struct Place {
    /// The queue's name
    queue: String,
    #[command(flatten)]
    broker: Broker,
    /// With --nats: the stream, where it is not called what the queue is
    #[arg(long, value_name = "NAME", requires = "nats")]
    stream: Option<String>,
    /// With --nats: a file of credentials (a JWT and its seed)
    #[arg(long, value_name = "FILE", requires = "nats")]
    nats_creds: Option<PathBuf>,
    /// With --nats: the roots that the server's certificate has to come from, where they are not the system's (PEM)
    #[arg(long, value_name = "FILE", requires = "nats")]
    nats_ca: Option<PathBuf>,
    /// With --postgres and sslmode=require: the roots that the server's certificate has to come from, where they are not those of the
    /// web (PEM)
    #[arg(long, value_name = "FILE", requires = "postgres")]
    postgres_ca: Option<PathBuf>,
    /// By how many milliseconds clocks may be wrong; what this machine says unless given
    #[arg(long, value_name = "MILLISECONDS")]
    uncertainty: Option<u64>,
    /// Print JSON instead of text
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Broker {
    /// A queue in NATS JetStream: nats://host, or tls://host, with a user and a password or a token before the host where it asks for one
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// A queue in RabbitMQ: amqp://user:password@host/vhost, or amqps://
    #[arg(long, value_name = "URL")]
    rabbitmq: Option<String>,
    /// A queue in PostgreSQL: postgres://user:password@host/database
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
}

/// What it is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    Look,
    Take,
}

pub(super) enum Opened {
    Nats(Nats),
    RabbitMq(Box<RabbitMq>),
    Postgres(PgQueue),
}

impl Place {
    /// Opens it as it is: nothing is made.
    pub(super) async fn open(&self, wants: Wants) -> Result<Opened, Box<dyn Error>> {
        let queue = self.queue.as_str();
        let Broker { nats, rabbitmq, postgres } = &self.broker;
        if let Some(url) = nats {
            let builder = Nats::builder(self.connect(&read(url)?).await?, queue);
            let builder = if let Some(stream) = &self.stream { builder.stream(stream) } else { builder };
            let builder = match wants {
                Wants::Look => builder.read_only(),
                Wants::Take => builder.declared_elsewhere(),
            };
            return Ok(Opened::Nats(builder.build().await?));
        }
        if let Some(url) = rabbitmq {
            let opened = RabbitMq::builder(read(url)?, queue).declared_elsewhere().build().await?;
            return Ok(Opened::RabbitMq(Box::new(opened)));
        }
        let url = read(postgres.as_deref().unwrap_or_default())?;
        // Said anew, since what is wrong with a URL may be said with its words.
        let config: Config =
            url.parse().map_err(|_| "the URL of the database is none: postgres://user:password@host/database")?;
        let over_tls = config.get_ssl_mode() == SslMode::Require;
        let pool = Pool::configured(config);
        let pool = if over_tls { pool.build_with(self.rustls()?)? } else { pool.build()? };
        Ok(Opened::Postgres(PgQueue::builder(queue.to_owned(), pool).build()?))
    }

    async fn connect(&self, url: &str) -> Result<async_nats::Client, Box<dyn Error>> {
        let mut address = url.parse::<ServerAddr>()?.into_inner();
        let decoded = |text: &str| Ok::<_, std::str::Utf8Error>(percent_decode_str(text).decode_utf8()?.into_owned());
        let (user, password) = (decoded(address.username())?, address.password().map(decoded).transpose()?);
        // The client itself reads none of them, and would show them.
        let _ = (address.set_username(""), address.set_password(None));
        let mut options = match password {
            Some(password) => ConnectOptions::with_user_and_password(user, password),
            None if !user.is_empty() => ConnectOptions::with_token(user),
            None => ConnectOptions::new(),
        };
        if let Some(file) = &self.nats_creds {
            let failed = |error: std::io::Error| format!("{}: {error}", file.display());
            options = options.credentials_file(file).await.map_err(failed)?;
        }
        if let Some(file) = &self.nats_ca {
            options = options.add_root_certificates(file.clone());
        }
        Ok(options.connect(ServerAddr::from_url(address)?).await?)
    }

    /// The certificate has to be for the host of the URL.
    fn rustls(&self) -> Result<Rustls, Box<dyn Error>> {
        let roots = match &self.postgres_ca {
            Some(file) => {
                let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
                let mut roots = RootCertStore::empty();
                for root in CertificateDer::pem_file_iter(file).map_err(|error| failed(&error))? {
                    roots.add(root.map_err(|error| failed(&error))?)?;
                }
                roots
            }
            None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
        };
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Rustls::new(Arc::new(config)))
    }

    pub(super) fn uncertainty(&self) -> Uncertainty {
        match self.uncertainty {
            Some(millis) => Uncertainty::assumed(Duration::from_millis(millis)),
            None => Uncertainty::of_this_machine(),
        }
    }
}

/// A URL, or what stands in the variable that it names.
fn read(url: &str) -> Result<String, String> {
    match url.strip_prefix("env:") {
        Some(name) => {
            std::env::var(name).map_err(|_| format!("the environment variable {name} is not set, or is no text"))
        }
        None => Ok(url.to_owned()),
    }
}
