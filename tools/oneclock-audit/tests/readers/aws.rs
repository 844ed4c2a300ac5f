//! AWS templates.

use crate::told::finds;
use crate::written::inventory;

#[test]
fn a_sam_template_with_its_globals_parameters_and_events() {
    let text = "\
Transform: AWS::Serverless-2016-10-31
Parameters:
  Limit: {Type: Number, Default: 45}
  Open: {Type: Number}
Globals:
  Function: {Timeout: 20}
Resources:
  Jobs:
    Type: AWS::SQS::Queue
    Properties:
      VisibilityTimeout: 30
      RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 5}
  Dead:
    Type: AWS::SQS::Queue
  Work:
    Type: AWS::Serverless::Function
    Properties:
      FunctionName: work
      Timeout: !Ref Limit
      Events:
        Jobs:
          Type: SQS
          Properties: {Queue: !GetAtt Jobs.Arn, MaximumBatchingWindowInSeconds: 10}
  Page:
    Type: AWS::Serverless::Function
    Properties:
      Events:
        Get: {Type: Api, Properties: {Path: /page, Method: get}}
        Post: {Type: HttpApi, Properties: {Path: /page, Method: POST, TimeoutInMillis: 10000}}
  Old:
    Type: AWS::Lambda::Function
  Late:
    Type: AWS::Lambda::Function
    Properties: {Timeout: !Ref Open}
";
    let want = "
    Service Work [AWS Lambda] answers to work
    Service Page [AWS Lambda] answers to
    Service Old [AWS Lambda] answers to
    Service Late [AWS Lambda] answers to
    Broker Jobs [Amazon SQS] answers to
    Broker Dead [Amazon SQS] answers to
    Gateway ServerlessRestApi [API Gateway (REST)] answers to
    Gateway ServerlessHttpApi [API Gateway (HTTP)] answers to
    call Jobs -> Work (Jobs)
    call ServerlessRestApi -> Page (route GET /page) GET
    call ServerlessHttpApi -> Page (route POST /page) POST
    Work: aws.lambda.timeout = 45s at template.yaml:19:21
    Page: aws.lambda.timeout = 20s at template.yaml:6:23
    Old: aws.lambda.timeout = 3s by default at template.yaml:31:5
    Late: aws.lambda.timeout = unknown (parameter Open) at template.yaml:34:32
    Jobs: aws.sqs.visibility_timeout = 30s at template.yaml:11:26
    Jobs: aws.sqs.retention = 96h by default at template.yaml:9:5
    Jobs: aws.sqs.max_receive_count = 5 at template.yaml:12:79
    Dead: aws.sqs.visibility_timeout = 30s by default at template.yaml:14:5
    Dead: aws.sqs.retention = 96h by default at template.yaml:14:5
    Jobs -> Work (Jobs): aws.event_source.batch_window = 10s at template.yaml:23:81
    ServerlessRestApi -> Page (route GET /page): aws.apigateway.rest_timeout = 29s by default at template.yaml:28:14
    ServerlessHttpApi -> Page (route POST /page): aws.apigateway.http_timeout = 10s at template.yaml:29:88
    ";
    finds("template.yaml", text, want);
}

#[test]
fn apis_balancers_and_mappings_in_json() {
    let text = r#"{
"Resources": {
  "Fn": {"Type": "AWS::Lambda::Function", "Properties": {"Timeout": 60}},
  "Alias": {"Type": "AWS::Lambda::Alias", "Properties": {"FunctionName": {"Ref": "Fn"}}},
  "Api": {"Type": "AWS::ApiGateway::RestApi"},
  "Get": {"Type": "AWS::ApiGateway::Method", "Properties": {"RestApiId": {"Ref": "Api"}, "HttpMethod": "GET",
    "Integration": {"Type": "AWS_PROXY", "Uri": {"Fn::Sub": "arn:aws:apigateway:x:lambda:path/functions/${Fn.Arn}/invocations"}}}},
  "Options": {"Type": "AWS::ApiGateway::Method", "Properties": {"RestApiId": {"Ref": "Api"}, "HttpMethod": "OPTIONS",
    "Integration": {"Type": "MOCK"}}},
  "Socket": {"Type": "AWS::ApiGatewayV2::Api", "Properties": {"ProtocolType": "WEBSOCKET"}},
  "Send": {"Type": "AWS::ApiGatewayV2::Integration", "Properties": {"ApiId": {"Ref": "Socket"},
    "IntegrationUri": {"Fn::Join": ["", ["arn:", {"Fn::GetAtt": ["Fn", "Arn"]}]]}, "TimeoutInMillis": 5000}},
  "Lb": {"Type": "AWS::ElasticLoadBalancingV2::LoadBalancer", "Properties":
    {"LoadBalancerAttributes": [{"Key": "idle_timeout.timeout_seconds", "Value": "120"}]}},
  "Tcp": {"Type": "AWS::ElasticLoadBalancingV2::LoadBalancer", "Properties": {"Type": "network"}},
  "Group": {"Type": "AWS::ElasticLoadBalancingV2::TargetGroup", "Properties": {"Targets": [{"Id": {"Ref": "Alias"}}]}},
  "Listener": {"Type": "AWS::ElasticLoadBalancingV2::Listener", "Properties": {"LoadBalancerArn": {"Ref": "Lb"},
    "DefaultActions": [{"Type": "forward", "TargetGroupArn": {"Ref": "Group"}}]}}
}}
"#;
    let want = "
    Service Fn [AWS Lambda] answers to
    Gateway Api [API Gateway (REST)] answers to
    Gateway Socket [API Gateway (WebSocket)] answers to
    Gateway Lb [AWS load balancer] answers to
    Between Group [AWS target group] answers to
    call Group -> Fn (target)
    call Api -> Fn (method GET) GET
    call Socket -> Fn (integration)
    call Lb -> Group (listener)
    Fn: aws.lambda.timeout = 1m at cdk.template.json:3:69
    Lb: aws.alb.idle_timeout = 2m at cdk.template.json:14:82
    Lb: aws.alb.client_keep_alive = 1h by default at cdk.template.json:13:9
    Group: aws.alb.deregistration_delay = 5m by default at cdk.template.json:16:12
    Api -> Fn (method GET): aws.apigateway.rest_timeout = 29s by default at cdk.template.json:7:20
    Socket -> Fn (integration): aws.apigateway.websocket_timeout = 5s at cdk.template.json:12:103
    ";
    finds("cdk.template.json", text, want);
}

#[test]
fn distributions_and_state_machines() {
    let text = "\
Resources:
  Edge:
    Type: AWS::CloudFront::Distribution
    Properties:
      DistributionConfig:
        Aliases: [shop.example.com]
        Origins:
        - {Id: app, DomainName: app.example.com, CustomOriginConfig: {OriginReadTimeout: 10}}
        - {Id: files, DomainName: files.s3.amazonaws.com, S3OriginConfig: {}}
  Step: {Type: AWS::Lambda::Function}
  Flow:
    Type: AWS::Serverless::StateMachine
    Properties:
      Definition:
        TimeoutSeconds: 300
        States:
          Work:
            Type: Task
            Resource: !GetAtt Step.Arn
            TimeoutSeconds: 5
            Retry: [{ErrorEquals: [States.ALL], MaxAttempts: 2}]
          Done: {Type: Pass}
";
    let want = "
    Service Step [AWS Lambda] answers to
    Gateway Edge [CloudFront] answers to shop.example.com
    Service Flow [AWS Step Functions] answers to
    call Edge -> app.example.com (origin), spares unsafe
    call Flow -> Step (state Work)
    Step: aws.lambda.timeout = 3s by default at flow.yaml:10:9
    Edge -> app.example.com (origin): aws.cloudfront.read_timeout = 10s at flow.yaml:8:90
    Edge -> app.example.com (origin): aws.cloudfront.connect_timeout = 10s by default at flow.yaml:8:11
    Edge -> app.example.com (origin): aws.cloudfront.connect_attempts = 3 by default at flow.yaml:8:11
    Flow: aws.stepfunctions.timeout = 5m at flow.yaml:15:25
    Flow -> Step (state Work): aws.stepfunctions.state_timeout = 5s at flow.yaml:20:29
    Flow -> Step (state Work): aws.stepfunctions.max_attempts = 2 at flow.yaml:21:62
    ";
    finds("flow.yaml", text, want);
}

#[test]
fn what_is_no_template_is_left_alone() {
    let text =
        "docs: 'AWS::Lambda::Function has a Timeout'\nResources: {Fn: {Type: Function, Properties: {Timeout: 3}}}\n";
    assert!(inventory(&[("notes.yaml", text)]).settings.is_empty());
}
