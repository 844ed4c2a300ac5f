//! Terraform modules.

use crate::told::{finds, finds_in};
use crate::written::inventory;
use oneclock_audit::inventory::Why;

#[test]
fn a_folder_is_one_module() {
    let main = "\
resource \"aws_lambda_function\" \"work\" {
  function_name = \"work\"
  timeout       = var.limit
  timeouts {
    create = \"30m\"
  }
}

resource \"aws_lambda_function\" \"page\" {
  timeout = local.page_limit + 1
}

resource \"aws_sqs_queue\" \"jobs\" {
  visibility_timeout_seconds = var.nothing
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead.arn
    maxReceiveCount     = 4
  })
}
";
    let other = "\
variable \"limit\" {
  type    = number
  default = 90
}
variable \"nothing\" {
  default = null
}
locals {
  page_limit = 20
}
resource \"aws_lambda_event_source_mapping\" \"jobs\" {
  event_source_arn = aws_sqs_queue.jobs.arn
  function_name    = \"${aws_lambda_function.work.arn}:live\"
  maximum_batching_window_in_seconds = 5
}
";
    let want = "
    Service work [AWS Lambda] answers to work
    Service page [AWS Lambda] answers to
    Broker jobs [Amazon SQS] answers to
    call jobs -> work (event source)
    work: aws.lambda.timeout = 1m30s at infra/main.tf:3:19
    page: aws.lambda.timeout = unknown (local.page_limit + 1) at infra/main.tf:10:13
    jobs: aws.sqs.visibility_timeout = 30s by default at infra/main.tf:13:1
    jobs: aws.sqs.retention = 96h by default at infra/main.tf:13:1
    jobs: aws.sqs.max_receive_count = 4 at infra/main.tf:17:27
    jobs -> work (event source): aws.event_source.batch_window = 5s at infra/other.tf:14:40
    ";
    finds_in(&[("infra/main.tf", main), ("infra/other.tf", other)], want);
}

#[test]
fn apis_and_balancers() {
    let text = "\
resource \"aws_lambda_function\" \"fn\" {}
resource \"aws_api_gateway_rest_api\" \"rest\" {}
resource \"aws_apigatewayv2_api\" \"socket\" {
  protocol_type = \"WEBSOCKET\"
}
resource \"aws_api_gateway_integration\" \"get\" {
  rest_api_id          = aws_api_gateway_rest_api.rest.id
  http_method          = \"GET\"
  uri                  = aws_lambda_function.fn.invoke_arn
  timeout_milliseconds = 12000
}
resource \"aws_apigatewayv2_integration\" \"send\" {
  api_id          = aws_apigatewayv2_api.socket.id
  integration_uri = aws_lambda_function.fn.invoke_arn
}
resource \"aws_lb\" \"front\" {
  idle_timeout = 30
}
resource \"aws_lb\" \"tcp\" {
  load_balancer_type = \"network\"
}
resource \"aws_lb_target_group\" \"app\" {
  deregistration_delay = 10
}
resource \"aws_lb_listener\" \"https\" {
  load_balancer_arn = aws_lb.front.arn
  default_action {
    type             = \"forward\"
    target_group_arn = aws_lb_target_group.app.arn
  }
}
resource \"google_cloud_run_v2_service\" \"page\" {
  template {
    timeout = \"60s\"
  }
}
";
    let want = "
    Service fn [AWS Lambda] answers to
    Gateway rest [API Gateway (REST)] answers to
    Gateway socket [API Gateway (WebSocket)] answers to
    Gateway front [AWS load balancer] answers to
    Between app [AWS target group] answers to
    Service page [Google Cloud Run] answers to
    call rest -> fn (integration) GET
    call socket -> fn (integration)
    call front -> app (listener)
    fn: aws.lambda.timeout = 3s by default at main.tf:1:1
    front: aws.alb.idle_timeout = 30s at main.tf:17:18
    front: aws.alb.client_keep_alive = 1h by default at main.tf:16:1
    app: aws.alb.deregistration_delay = 10s at main.tf:23:26
    page: gcp.cloudrun.timeout = 1m at main.tf:34:15
    rest -> fn (integration): aws.apigateway.rest_timeout = 12s at main.tf:10:26
    socket -> fn (integration): aws.apigateway.websocket_timeout = 29s by default at main.tf:12:1
    ";
    finds("main.tf", text, want);
}

#[test]
fn json_is_listed_and_overrides_are_left_alone() {
    let found = inventory(&[
        ("main.tf.json", "{\"resource\": {\"aws_lambda_function\": {\"a\": {\"timeout\": 3}}}}"),
        ("override.tf", "resource \"aws_lambda_function\" \"a\" {}\n"),
    ]);
    assert!(found.settings.is_empty());
    assert_eq!(found.left_out.iter().map(|left| left.why).collect::<Vec<_>>(), [Why::NotRead]);
}

/// The parser takes every level by a call of its own; it has to end before the stack does. Each of these would nest a
/// hundred thousand times.
#[test]
fn what_nests_without_end_is_listed() {
    let deep = 100_000;
    for text in [
        format!("a = {}1{}\n", "(".repeat(deep), ")".repeat(deep)),
        format!("a = {}1{}\n", "[".repeat(deep), "]".repeat(deep)),
        format!("a = {}1{}\n", "{b=".repeat(deep), "}".repeat(deep)),
        format!("a = {}true\n", "!".repeat(deep)),
        format!("a = {}1\n", "- ".repeat(deep)),
        format!("a = {}1\n", "b ? c : ".repeat(deep)),
        format!("a = 1{}\n", " + 1".repeat(deep)),
        format!("a = {}1{}\n", "f(".repeat(deep), ")".repeat(deep)),
        format!("a = {}\n", "\"${".repeat(deep)),
        format!("a = \"{}\"\n", "%{ if b }".repeat(deep)),
        format!("{}{}\n", "a {\n".repeat(deep), "}\n".repeat(deep)),
        format!("a = b{}\n", "[c".repeat(deep)),
        format!("a = {}\n", "[for b in ".repeat(deep)),
    ] {
        let start: String = text.chars().take(12).collect();
        let found = inventory(&[("main.tf", &text)]);
        assert_eq!(found.left_out.iter().map(|left| left.why).collect::<Vec<_>>(), [Why::Unparsed], "{start}");
    }
}

#[test]
fn a_function_that_is_only_told_to_begin_is_not_waited_for() {
    let calls = |how: &str| {
        let text = format!(
            "resource \"aws_api_gateway_rest_api\" \"api\" {{\n  name = \"api\"\n}}\nresource \"aws_api_gateway_integration\" \"one\" {{\n  rest_api_id = aws_api_gateway_rest_api.api.id\n  uri         = \"https://stock.example/x\"\n  request_parameters = {{\n    \"integration.request.header.X-Amz-Invocation-Type\" = \"'{how}'\"\n  }}\n}}\n"
        );
        inventory(&[("main.tf", &text)]).edges.len()
    };
    assert_eq!((calls("RequestResponse"), calls("Event")), (1, 0));
}
