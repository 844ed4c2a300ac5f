//! What a builder was told holds in whichever order it was said, and what contradicts itself is refused.

use oneclock::Effect;
use oneclock_core::Name;
use oneclock_queue::{BadConsumer, Consumer, ConsumerBuilder, MemoryBroker};

type Builder = ConsumerBuilder<MemoryBroker>;

fn built(said: impl FnOnce(Builder) -> Builder) -> Result<(), BadConsumer> {
    said(Consumer::builder(MemoryBroker::new("orders"))).build(|_| async { Ok(()) }).map(drop)
}

#[test]
fn a_handler_that_enforces_keys_has_no_other_effect() {
    let queue = Name::literal("orders");
    for effect in [Effect::Once, Effect::Idempotent, Effect::ReadOnly] {
        let refused = Err(BadConsumer::EffectBesideKeys { queue: queue.clone(), effect: effect.clone() });
        assert_eq!(built(|builder| builder.enforces_keys().effect(effect.clone())), refused);
        assert_eq!(built(|builder| builder.effect(effect.clone()).enforces_keys()), refused);
    }
    let keyed = Effect::Keyed("order".into());
    assert_eq!(built(|builder| builder.enforces_keys().effect(keyed.clone())), Ok(()));
    assert_eq!(built(|builder| builder.effect(keyed).enforces_keys()), Ok(()));
    let said = Err(BadConsumer::EffectBesideKeys { queue, effect: Effect::Once })
        .map_err(|error: BadConsumer| error.to_string());
    let want =
        "orders: a handler that enforces keys has one effect for each of them, and `effect` says Once: leave one out";
    assert_eq!(said, Err::<(), _>(want.to_owned()));
}

#[cfg(feature = "idempotency")]
#[test]
fn one_sees_to_it_that_a_key_has_one_effect() {
    use oneclock_idempotency::MemoryStore;
    let day = std::time::Duration::from_secs(86_400);
    let refused = Err(BadConsumer::KeptTwice { queue: Name::literal("orders") });
    assert_eq!(built(|builder| builder.once(MemoryStore::new(), day).enforces_keys()), refused);
    assert_eq!(built(|builder| builder.enforces_keys().once(MemoryStore::new(), day)), refused);
    assert_eq!(built(|builder| builder.effect(Effect::Idempotent).once(MemoryStore::new(), day)), Ok(()));
}
