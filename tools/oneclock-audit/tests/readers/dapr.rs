//! Dapr's resiliency policies.

use crate::told::finds;

#[test]
fn policies_are_told_where_they_are_laid_on() {
    let text = "\
apiVersion: dapr.io/v1alpha1
kind: Resiliency
metadata: {name: all}
spec:
  policies:
    timeouts: {short: 2s, unused: 9s}
    retries:
      forever: {policy: constant, duration: 5s}
      few: {policy: exponential, maxInterval: 15s, maxRetries: 3}
    circuitBreakers:
      simple: {maxRequests: 1, timeout: 30s}
  targets:
    apps:
      orders: {timeout: short, retry: few, circuitBreaker: simple}
    components:
      state:
        outbound: {retry: forever, timeout: nobody}
";
    let want = "
    Between Dapr sidecar [Dapr] answers to
    call Dapr sidecar -> orders (service invocation), repeats unsafe
    calls to orders: dapr.timeout = 2s at resiliency.yaml:6:23
    calls to orders: dapr.retry.max_retries = 3 at resiliency.yaml:9:64
    calls to orders: dapr.breaker.timeout = 30s at resiliency.yaml:11:41
    calls to state: dapr.retry.max_retries = none by default at resiliency.yaml:8:16
    calls to state: dapr.retry.duration = 5s at resiliency.yaml:8:45
    left out resiliency.yaml:17:45: NotUnderstood, timeout: no policy of this name in this file
    ";
    finds("resiliency.yaml", text, want);
}

#[test]
fn other_kinds_are_not_its_own() {
    finds("component.yaml", "apiVersion: dapr.io/v1alpha1\nkind: Component\nspec: {timeout: 5s}\n", "");
}
