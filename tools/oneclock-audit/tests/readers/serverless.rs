//! The Serverless Framework.

use crate::told::finds;
use crate::written::inventory;

#[test]
fn functions_apis_queues_and_resources() {
    let text = "\
service: shop
provider:
  name: aws
  timeout: 10
functions:
  page:
    handler: page.get
    events:
    - http: GET page
    - http: {path: page, method: post}
    - httpApi: 'ANY /new'
  work:
    handler: work.go
    timeout: ${opt:limit}
    events:
    - sqs: {arn: 'arn:aws:sqs:eu-west-1:1:jobs', maximumBatchingWindow: 5}
    - sqs: !GetAtt Jobs.Arn
resources:
  Resources:
    Jobs: {Type: 'AWS::SQS::Queue', Properties: {VisibilityTimeout: 60}}
";
    let want = "
    Broker Jobs [Amazon SQS] answers to
    Service page [AWS Lambda] answers to
    Gateway shop [API Gateway (REST)] answers to
    Gateway shop [API Gateway (HTTP)] answers to
    Service work [AWS Lambda] answers to
    Broker jobs [Amazon SQS] answers to jobs
    call shop -> page (route GET page) GET
    call shop -> page (route POST page) POST
    call shop -> page (route ANY /new)
    call jobs -> work (sqs)
    call Jobs -> work (sqs)
    Jobs: aws.sqs.visibility_timeout = 1m at serverless.yml:20:69
    Jobs: aws.sqs.retention = 96h by default at serverless.yml:20:11
    page: serverless.timeout = 10s at serverless.yml:4:12
    shop -> page (route GET page): aws.apigateway.rest_timeout = 29s by default at serverless.yml:9:13
    shop -> page (route POST page): aws.apigateway.rest_timeout = 29s by default at serverless.yml:10:13
    shop -> page (route ANY /new): aws.apigateway.http_timeout = 30s by default at serverless.yml:11:16
    work: serverless.timeout = unknown (${opt:limit}) at serverless.yml:14:14
    jobs -> work (sqs): aws.event_source.batch_window = 5s at serverless.yml:16:73
    ";
    finds("serverless.yml", text, want);
}

#[test]
fn nobody_wrote_a_limit_and_six_seconds_hold() {
    let text = "service: a\nprovider: aws\nfunctions:\n  one: {handler: a.b}\n";
    finds(
        "serverless.yml",
        text,
        "
    Service one [AWS Lambda] answers to
    one: serverless.timeout = 6s by default at serverless.yml:4:8
    ",
    );
}

#[test]
fn other_providers_are_not_read() {
    let text = "service: a\nprovider: {name: google}\nfunctions:\n  one: {handler: a.b}\n";
    assert!(inventory(&[("serverless.yml", text)]).settings.is_empty());
}
