//! gRPC service configs.

use crate::told::finds;
use crate::written::inventory;
use oneclock_audit::inventory::Propagates;

const CONFIG: &str = r#"{"methodConfig": [
  {"name": [{"service": "shop.Carts", "method": "Get"}, {}], "timeout": "0.250s",
   "retryPolicy": {"maxAttempts": 9, "initialBackoff": "0.1s", "maxBackoff": "1s", "retryableStatusCodes": ["UNAVAILABLE"]}},
  {"name": [{"service": "shop.Feed"}], "hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.5s"}}
]}
"#;

#[test]
fn a_timeout_is_for_all_attempts_and_attempts_end_at_five() {
    let want = "
    Service client of shop_grpc_service_config.json [gRPC] answers to
    call client of shop_grpc_service_config.json -> shop.carts (gRPC shop.Carts/Get), repeats unsafe
    call client of shop_grpc_service_config.json -> every-grpc-service (gRPC), repeats unsafe
    call client of shop_grpc_service_config.json -> shop.feed (gRPC shop.Feed), repeats unsafe
    client of shop_grpc_service_config.json -> shop.carts (gRPC shop.Carts/Get): grpc.timeout = 250ms at shop_grpc_service_config.json:2:73
    client of shop_grpc_service_config.json -> shop.carts (gRPC shop.Carts/Get): grpc.retry.initial_backoff = 100ms at shop_grpc_service_config.json:3:56
    client of shop_grpc_service_config.json -> shop.carts (gRPC shop.Carts/Get): grpc.retry.max_attempts = 5 at shop_grpc_service_config.json:3:35
    client of shop_grpc_service_config.json -> every-grpc-service (gRPC): grpc.timeout = 250ms at shop_grpc_service_config.json:2:73
    client of shop_grpc_service_config.json -> every-grpc-service (gRPC): grpc.retry.initial_backoff = 100ms at shop_grpc_service_config.json:3:56
    client of shop_grpc_service_config.json -> every-grpc-service (gRPC): grpc.retry.max_attempts = 5 at shop_grpc_service_config.json:3:35
    client of shop_grpc_service_config.json -> shop.feed (gRPC shop.Feed): grpc.hedging.delay = 500ms at shop_grpc_service_config.json:4:92
    client of shop_grpc_service_config.json -> shop.feed (gRPC shop.Feed): grpc.hedging.max_attempts = 3 at shop_grpc_service_config.json:4:73
    ";
    finds("shop_grpc_service_config.json", CONFIG, want);
}

#[test]
fn the_deadline_goes_along() {
    let found = inventory(&[("config.json", CONFIG)]);
    assert_eq!(found.edges.len(), 3);
    assert!(found.edges.iter().all(|edge| edge.propagates == Propagates::Deadline));
}

#[test]
fn inside_another_document_and_nowhere_else() {
    let inside = r#"{"serviceConfig": {"methodConfig": [{"name": [{"service": "a.B"}], "timeout": "1s"}]}}"#;
    assert_eq!(inventory(&[("lookup.json", inside)]).settings.len(), 1);
    let other = r#"{"methodConfig": "none", "timeout": "1s"}"#;
    assert!(inventory(&[("other.json", other)]).settings.is_empty());
}
