//! What a consumer does with work, over the broker in memory and in virtual time: the rules that hold over every broker.

mod consumer {
    mod effects;
    mod ends;
    mod keys;
    mod leases;
    mod oncall;
    mod producers;
    mod support;
}
