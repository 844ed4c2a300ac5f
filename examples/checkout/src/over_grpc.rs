//! Tests: what the gRPC edition of pricing and payment does for a caller of its own, on either side.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::purchase::{Service, Try};
use crate::stands::Stands;
use crate::story::{Story, Within};
use crate::transport::Transport;
use crate::watched::Observers;
use crate::witness::{End, Execution, Witness};
use crate::{BoxError, Director, independent, plain_client, propagated, rpc};

const OF: Try = Try { tap: 1, visit: 1, number: 1, article: 3 };

/// Longer than anything here takes on a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// What services work, and what is seen of it.
struct Seen {
    stands: Stands,
    witness: Arc<Witness>,
}

impl Seen {
    async fn of(story: &Story) -> Result<Self, BoxError> {
        let witness = Arc::new(Witness::default());
        Ok(Self { stands: Stands::set_up(story, "", None, &witness).await?, witness })
    }

    /// Waits for the only execution to begin, if it has to, and to end.
    async fn only_execution(&self) -> Result<Execution, BoxError> {
        let ended = async {
            loop {
                match self.witness.executions_for(OF.tap)[..] {
                    [execution] if execution.ended.is_some() => return Ok(execution),
                    [] | [_] => sleep(Duration::from_millis(5)).await,
                    _ => return Err("more than one".into()),
                }
            }
        };
        timeout(BOUND, ended).await?
    }
}

/// A story whose statements take longer than any caller here waits.
fn slow() -> Story {
    Story { usual: |_| 4_000, ..Story::default() }
}

fn keyed() -> Story {
    Story { within: Within { keys: true, ..Story::default().within }, ..Story::default() }
}

async fn call(base: &str, service: Service, set: impl Fn(&mut tonic::Request<rpc::Article>)) -> Result<String, Status> {
    let channel: Channel = Endpoint::from_shared(base.to_owned()).map_err(|_| Status::internal(""))?.connect_lazy();
    let mut request = rpc::request(OF);
    set(&mut request);
    let method = Transport::Grpc.method_of(service).unwrap_or_default();
    timeout(BOUND, rpc::send(channel, method, request)).await.map_err(|_| Status::aborted("never"))?.map(|done| done.by)
}

fn with_300_ms(request: &mut tonic::Request<rpc::Article>) {
    request.set_timeout(Duration::from_millis(300));
}

#[tokio::test(flavor = "multi_thread")]
async fn told_300_ms_a_statement_ends_with_one_budget() -> Result<(), BoxError> {
    for service in [Service::Pricing, Service::Payment] {
        let story = slow();
        let seen = Seen::of(&story).await?;
        let shop = propagated::open(&story, Transport::Grpc, &seen.stands, &Observers::new()).await?;
        assert!(call(shop.addresses.base(service), service, with_300_ms).await.is_err());
        assert_eq!(seen.only_execution().await?.end, End::Stopped, "{service:?}");
        shop.close().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn told_300_ms_a_statement_goes_on_with_independent_timeouts() -> Result<(), BoxError> {
    let story = slow();
    let seen = Seen::of(&story).await?;
    let shop = independent::open(&story, Transport::Grpc, &seen.stands).await?;
    assert!(call(shop.addresses.base(Service::Payment), Service::Payment, with_300_ms).await.is_err());
    assert_eq!(seen.only_execution().await?.end, End::Finished);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn told_nothing_pricing_gives_itself_a_time() -> Result<(), BoxError> {
    let story = slow();
    let seen = Seen::of(&story).await?;
    let shop = propagated::open(&story, Transport::Grpc, &seen.stands, &Observers::new()).await?;
    let asked = call(shop.addresses.base(Service::Pricing), Service::Pricing, |_| ()).await;
    assert!(matches!(&asked, Err(status) if status.code() == Code::DeadlineExceeded), "{asked:?}");
    assert_eq!(seen.only_execution().await?.end, End::Stopped);
    shop.close().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_charge_for_each_key() -> Result<(), BoxError> {
    let key = |key: &'static str| {
        move |request: &mut tonic::Request<rpc::Article>| {
            request.metadata_mut().insert("idempotency-key", tonic::metadata::MetadataValue::from_static(key));
        }
    };
    let other_article = |request: &mut tonic::Request<rpc::Article>| {
        key("a")(request);
        request.get_mut().number += 1;
    };
    let seen = Seen::of(&keyed()).await?;
    let shop = propagated::open(&keyed(), Transport::Grpc, &seen.stands, &Observers::new()).await?;
    let (base, payment) = (shop.addresses.base(Service::Payment), Service::Payment);
    let (first, at_the_same_time) = tokio::join!(call(base, payment, key("a")), call(base, payment, key("a")));
    assert_eq!((first?, at_the_same_time?), ("payment".to_owned(), "payment".to_owned()));
    call(base, payment, key("a")).await?;
    assert_eq!(seen.witness.executions_at(payment), 1);
    let refusals = [
        (call(base, payment, other_article).await, Code::FailedPrecondition),
        (call(base, payment, |_| ()).await, Code::InvalidArgument),
    ];
    for (refused, code) in refusals {
        assert!(matches!(&refused, Err(status) if status.code() == code), "{refused:?}");
    }
    assert_eq!(seen.witness.executions_at(payment), 1);
    call(base, payment, key("b")).await?;
    assert_eq!(seen.witness.executions_at(payment), 2);
    shop.close().await;

    // With independent timeouts nobody looks at a key.
    let seen = Seen::of(&keyed()).await?;
    let shop = independent::open(&keyed(), Transport::Grpc, &seen.stands).await?;
    for _ in 0..2 {
        call(shop.addresses.base(payment), payment, key("a")).await?;
    }
    assert_eq!(seen.witness.executions_at(payment), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_endpoint_is_beside_the_method_and_what_is_not_there_is_unimplemented() -> Result<(), BoxError> {
    let (story, grpc) = (Story::default(), Transport::Grpc);
    let (seen, seen_too) = (Seen::of(&story).await?, Seen::of(&story).await?);
    let shops = (
        independent::open(&story, grpc, &seen.stands).await?,
        propagated::open(&story, grpc, &seen_too.stands, &Observers::new()).await?,
    );
    for addresses in [&shops.0.addresses, &shops.1.addresses] {
        let director = Director { client: plain_client(), addresses };
        director.set(Service::Pricing, crate::Trouble { fail: true, ..Default::default() }).await?;
        let base = addresses.base(Service::Pricing);
        let failed = call(base, Service::Pricing, |_| ()).await;
        assert!(matches!(&failed, Err(status) if status.code() == Code::Internal), "{failed:?}");
        let elsewhere = call(base, Service::Payment, |_| ()).await;
        assert!(matches!(&elsewhere, Err(status) if status.code() == Code::Unimplemented), "{elsewhere:?}");
    }
    shops.1.close().await;
    Ok(())
}
