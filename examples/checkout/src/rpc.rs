//! The calls of `proto/shop.proto`: their messages, one server side and one client side, for whoever keeps the time.
//!
//! By hand, on tonic's own parts: both methods are of one shape, and less than a generator and its compiler would bring.

use std::future::Future;

use axum::Router;
use axum::body::Body;
use futures_util::stream;
use http::uri::PathAndQuery;
use tonic::Status;
use tonic::client::GrpcService;
use tonic::service::Routes;
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::BoxError;
use crate::purchase::{Service, TRY, Try};
use crate::trouble::Trouble;

/// What is bought.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Article {
    #[prost(uint32, tag = "1")]
    pub(crate) number: u32,
}

/// The work was done.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Done {
    #[prost(string, tag = "1")]
    pub(crate) by: String,
}

/// Answers a call of `service` with what `work` does for it, as its trouble lets it out.
///
/// An answer to a unary call is a stream of one message: served as one, for a trouble to hold it back after the head.
pub(crate) async fn answer<F>(
    service: Service,
    request: http::Request<Body>,
    work: impl Fn(Try) -> F,
) -> http::Response<tonic::body::Body>
where
    F: Future<Output = Result<Trouble, Status>>,
{
    let of = Try::of(request.headers());
    let worked = service_fn(|request: tonic::Request<Article>| {
        let working = Box::pin(work(Try { article: request.get_ref().number, ..of }));
        async move {
            let trouble = working.await?;
            let done = Done { by: service.name().to_owned() };
            Ok::<_, Status>(tonic::Response::new(stream::once(async move {
                trouble.holds_back(prost::Message::encoded_len(&done)).await;
                Ok(done)
            })))
        }
    });
    tonic::server::Grpc::new(ProstCodec::default()).server_streaming(worked, request).await
}

/// Answers calls of all other methods as gRPC has it.
pub(crate) fn or_unimplemented(routes: Router) -> Router {
    Routes::default().into_axum_router().merge(routes)
}

/// A request for `of`, without a limit.
pub(crate) fn request(of: Try) -> tonic::Request<Article> {
    let mut request = tonic::Request::new(Article { number: of.article });
    if let Ok(field) = of.to_field().parse() {
        request.metadata_mut().insert(TRY, field);
    }
    request
}

/// One call of a method through `channel`.
pub(crate) async fn send<C>(channel: C, method: &'static str, request: tonic::Request<Article>) -> Result<Done, Status>
where
    C: GrpcService<tonic::body::Body>,
    C::ResponseBody: Send + 'static,
    <C::ResponseBody as http_body::Body>::Error: Into<BoxError>,
{
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let path = PathAndQuery::from_static(method);
    Ok(client.unary(request, path, ProstCodec::<Article, Done>::default()).await?.into_inner())
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::transport::Transport;

    const PROTO: &str = include_str!("../proto/shop.proto");

    /// Every line that says something, without its punctuation.
    fn lines() -> impl Iterator<Item = Vec<&'static str>> {
        let said = PROTO.lines().map(|line| line.split("//").next().unwrap_or_default());
        let words = |line: &'static str| line.split([' ', '(', ')', '{', '}', ';']).filter(|word| !word.is_empty());
        said.map(move |line| words(line).collect()).filter(|words: &Vec<_>| !words.is_empty())
    }

    #[test]
    fn the_methods_are_those_of_the_file() {
        let (mut package, mut service, mut methods) = ("", "", Vec::new());
        for line in lines() {
            match line[..] {
                ["package", name] => package = name,
                ["service", name] => service = name,
                ["rpc", name, "Article", "returns", "Done"] => methods.push(format!("/{package}.{service}/{name}")),
                ["rpc", ..] => methods.push(format!("{line:?} is not as the code has it")),
                _ => {}
            }
        }
        let ours = [Service::Pricing, Service::Payment].map(|service| Transport::Grpc.method_of(service));
        assert_eq!(ours.into_iter().flatten().collect::<Vec<_>>(), methods);
    }

    #[test]
    fn the_messages_are_those_of_the_file() {
        let fields: Vec<_> = lines().filter(|line| line.contains(&"=") && line[0] != "syntax").collect();
        assert_eq!(fields, [["uint32", "number", "=", "1"], ["string", "by", "=", "1"]]);
        // A field 1 as a varint, and one as a string.
        assert_eq!(Article { number: 300 }.encode_to_vec(), [0x08, 0xac, 0x02]);
        assert_eq!(Done { by: "me".to_owned() }.encode_to_vec(), [0x0a, 2, b'm', b'e']);
    }
}
