//! Workloads of Kubernetes, the services that name them, and Knative.

use crate::told::finds;

#[test]
fn a_service_names_the_workload_that_it_selects() {
    let text = "\
apiVersion: v1
kind: Service
metadata: {name: cart-svc, namespace: shop}
spec: {selector: {app: cart}, ports: [{port: 80}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {USERS_URL: 'http://users', USERS_TIMEOUT_SECONDS: '2.5'}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop}
spec:
  progressDeadlineSeconds: 120
  template:
    metadata: {labels: {app: cart, tier: back}}
    spec:
      terminationGracePeriodSeconds: 60
      containers:
      - name: cart
        image: shop/cart
        command: [gunicorn, app, --timeout=20]
        envFrom: [{configMapRef: {name: settings}}]
        env:
        - {name: PAYMENT_SERVICE_ADDR, value: 'payment:50051'}
        - {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: k}}}
        readinessProbe: {timeoutSeconds: 3}
        lifecycle: {preStop: {exec: {command: [sh, -c, sleep 15]}}}
      - name: sidecar
        image: envoyproxy/envoy
        lifecycle: {preStop: {sleep: {seconds: 50}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: report}
spec: {jobTemplate: {spec: {activeDeadlineSeconds: 600, template: {spec: {containers: [{name: report, image: shop/report}]}}}}}
";
    let want = "
    Service cart [] answers to cart-svc.shop
    Worker report [] answers to
    call cart -> payment.shop:50051 (PAYMENT_SERVICE_ADDR)
    call cart -> users.shop:80 (USERS_URL)
    cart: kubernetes.grace_after_pre_stop = 45s at shop.yaml:19:38
    cart: kubernetes.progress_deadline = 2m at shop.yaml:15:28
    cart: gunicorn.heartbeat = 20s at shop.yaml:23:34
    cart: gunicorn.timeout = unknown (worker_class is not said here) at shop.yaml:23:34
    cart -> users.shop:80 (USERS_URL): environment.attempt = 2.5s at shop.yaml:9:58
    cart: kubernetes.probe.timeout = 3s at shop.yaml:28:42
    cart: kubernetes.probe.period = 10s by default at shop.yaml:28:25
    report: kubernetes.grace = 30s by default at shop.yaml:37:74
    report: kubernetes.active_deadline = 10m at shop.yaml:37:52
    left out shop.yaml:23:34: NotUnderstood, worker_class is not said here: whether it ends a request is not judged
    ";
    finds("shop.yaml", text, want);
}

#[test]
fn a_list_holds_objects_and_a_workload_without_a_service_has_its_own_name() {
    let text = "\
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: StatefulSet
  metadata: {name: db}
  spec:
    template:
      spec:
        terminationGracePeriodSeconds: ${GRACE}
        containers: [{name: db, image: 'postgres:16', args: [-c, statement_timeout=30s]}]
- apiVersion: v1
  kind: Pod
  metadata: {name: web}
  spec:
    containers: [{name: web, image: web, lifecycle: {preStop: {exec: {command: [/bin/sleep, '30']}}}}]
";
    let want = "
    Store db [PostgreSQL] answers to db
    Service web [] answers to web
    db: kubernetes.grace = unknown (${GRACE}) at all.yaml:10:40
    db: postgresql.statement_timeout = 30s at all.yaml:11:66
    web: kubernetes.grace_after_pre_stop = 0s by default at all.yaml:16:5
    ";
    finds("all.yaml", text, want);
}

#[test]
fn knative_bounds_each_request() {
    let text = "\
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: hello, namespace: shop}
spec: {template: {spec: {timeoutSeconds: 120, containers: [{image: hello}]}}}
";
    let want = "
    Service hello [Knative] answers to hello.shop
    hello: knative.timeout = 2m at hello.yaml:4:42
    ";
    finds("hello.yaml", text, want);
}

#[test]
fn what_is_no_workload_is_not_taken() {
    finds(
        "crd.yaml",
        "apiVersion: example.com/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {template: {spec: {}}}\n",
        "",
    );
    finds("cfn.yaml", "Resources:\n  Api:\n    Type: AWS::ApiGateway::Deployment\n", "");
}
