//! D8: a transaction pooler in front of the server is noticed, and nothing is sent through it that would harm others.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use oneclock_core::Outcome;
use oneclock_core::statement::PoolerSign;
use oneclock_sqlx::sqlx;
use oneclock_sqlx::{NotReady, Pool, SqlxError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Database, PLENTY, operation, server};

/// A pooler as small as can be: a client has a backend from the first message of a transaction to its end.
struct Pooler {
    address: SocketAddr,
}

type Backends = Arc<Mutex<Vec<TcpStream>>>;

impl Pooler {
    async fn new(database: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (database, backends) = (database.to_owned(), Backends::default());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, database.clone(), Arc::clone(&backends)));
            }
        });
        Self { address }
    }
}

/// One message after its first byte, its length included.
async fn rest(from: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    let mut message = length.to_be_bytes().to_vec();
    message.resize(length as usize, 0);
    from.read_exact(&mut message[4..]).await?;
    Ok(message)
}

async fn message(from: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let kind = from.read_u8().await?;
    let mut whole = vec![kind];
    whole.extend(rest(from).await?);
    Ok((kind, whole))
}

async fn serve(mut client: TcpStream, database: String, backends: Backends) -> std::io::Result<()> {
    const SSL: [u8; 4] = 80_877_103_u32.to_be_bytes();
    while rest(&mut client).await?[4..8] == SSL {
        client.write_all(b"N").await?;
    }
    client.write_all(b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x01Z\0\0\0\x05I").await?;
    let mut backend: Option<TcpStream> = None;
    loop {
        let (kind, whole) = message(&mut client).await?;
        if kind == b'X' {
            return Ok(());
        }
        let mut to = match backend.take().or_else(|| backends.lock().unwrap().pop()) {
            Some(to) => to,
            None => begin(&database).await?,
        };
        to.write_all(&whole).await?;
        let mut status = b'T';
        if matches!(kind, b'Q' | b'S') {
            loop {
                let (kind, whole) = message(&mut to).await?;
                client.write_all(&whole).await?;
                if kind == b'Z' {
                    status = whole[5];
                    break;
                }
            }
        }
        if status == b'I' {
            backends.lock().unwrap().push(to);
        } else {
            backend = Some(to);
        }
    }
}

async fn begin(database: &str) -> std::io::Result<TcpStream> {
    let mut to = TcpStream::connect((server().get_host(), server().get_port())).await?;
    let mut startup = 196_608_u32.to_be_bytes().to_vec();
    for word in ["user", server().get_username(), "database", database, ""] {
        startup.extend(word.as_bytes());
        startup.push(0);
    }
    to.write_u32(u32::try_from(startup.len()).unwrap() + 4).await?;
    to.write_all(&startup).await?;
    while message(&mut to).await?.0 != b'Z' {}
    Ok(to)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d8_a_transaction_pooler_is_refused() {
    let database = Database::new().await;
    let pooler = Pooler::new(database.options().get_database().unwrap()).await;
    let options = database.options().host("127.0.0.1").port(pooler.address.port());
    let pool = Pool::with_options(options).size(2).build().unwrap();
    let op = operation(PLENTY);
    for _ in 0..2 {
        let refused = pool.get_in(&op, "lookup").await.unwrap_err();
        let SqlxError::Pooler { sign, .. } = refused else { panic!("{refused}") };
        assert!(matches!(sign, PoolerSign::BackendShared | PoolerSign::BackendChanged));
        assert_eq!(refused.outcome(), Outcome::NotSent);
    }
    let statement = sqlx::query("SELECT 1").execute(pool.named_in(&op, "lookup")).await;
    assert!(matches!(crate::support::error(statement), SqlxError::Pooler { .. }));
    assert!(matches!(pool.self_test().await, Err(NotReady::NotDone { source: SqlxError::Pooler { .. } })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_self_test_passes_on_a_server_that_does_what_it_should() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(2));
    pool.self_test().await.unwrap();
    pool.self_test().await.unwrap();
    assert_eq!(pool.status().discarded, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_self_test_says_that_there_is_no_server() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap(); // and it is gone again
    let pool = Pool::with_options(server().port(nobody.port())).build().unwrap();
    let refused = pool.self_test().await;
    assert!(matches!(refused, Err(NotReady::NotDone { source: SqlxError::Connect { .. } })), "{refused:?}");
}
