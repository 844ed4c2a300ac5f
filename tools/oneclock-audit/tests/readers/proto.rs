//! `.proto` files.

use crate::told::{finds, lines};

#[test]
fn each_method_with_what_is_said_of_repeating_it() {
    let text = r#"syntax = "proto3";
import "google/api/annotations.proto";
package shop.v1;

/* service Old { rpc Gone(A) returns (B); } /* these do not nest */
message Cart { string id = 1 [(note) = "}"]; message Line { oneof of { int32 a = 1; } } }

service Carts {
  option (owner) = { team: "shop" };
  rpc Add(Cart) returns (.shop.v1.Cart); // { no block
  rpc Get(Cart) returns (Cart) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Watch (stream Cart) returns (stream Cart) {
    option deprecated = true;
    option idempotency_level /* why */ = IDEMPOTENT;
  };
  rpc Drop(Cart) returns (Cart) { option idempotency_level = IDEMPOTENCY_UNKNOWN; }
  rpc Say(Cart) returns (Cart) { option (note) = "option idempotency_level = IDEMPOTENT;"; }
}
service Empty {}
"#;
    let want = "
    rpc shop.v1.Carts/Add: nothing at shop.proto:10:7
    rpc shop.v1.Carts/Get: NoSideEffects at shop.proto:11:7
    rpc shop.v1.Carts/Watch: Idempotent at shop.proto:12:7
    rpc shop.v1.Carts/Drop: nothing at shop.proto:16:7
    rpc shop.v1.Carts/Say: nothing at shop.proto:17:7
    ";
    finds("shop.proto", text, want);
}

#[test]
fn a_mapping_to_get_has_no_effect() {
    let text = r#"service Shelf {
  rpc Get(A) returns (B) { option (google.api.http) = { get: "/v1/{name=shelves/*}" }; }
  rpc List(A) returns (B) { option (google.api.http).get = "/v1/shelves"; }
  rpc Find(A) returns (B) {
    option (.google.api.http) = { post: "/v1/shelves:find" body: "*" additional_bindings { get: "/v1/found" } };
  }
  rpc Put(A) returns (B) { option (google.api.http) = { put: "/v1/get: x", body: "*" }; }
  rpc Both(A) returns (B) { option (google.api.http) = { get: "/v1/a" post: "/v1/a" }; }
  rpc Touch(A) returns (B) {
    option idempotency_level = IDEMPOTENT;
    option (google.api.http) = { get: "/v1/touch" };
  }
  rpc Know(A) returns (B) {
    option (x.any) = { [type.example.com/x.Y] { get: "/" } };
    option (google.api.method_signature) = "get";
  }
}
"#;
    let want = "
    rpc Shelf/Get: Get at shelf.proto:2:7
    rpc Shelf/List: Get at shelf.proto:3:7
    rpc Shelf/Find: nothing at shelf.proto:4:7
    rpc Shelf/Put: nothing at shelf.proto:7:7
    rpc Shelf/Both: nothing at shelf.proto:8:7
    rpc Shelf/Touch: Idempotent at shelf.proto:9:7
    rpc Shelf/Know: nothing at shelf.proto:13:7
    ";
    finds("shelf.proto", text, want);
}

#[test]
fn every_syntax_and_edition() {
    for head in [
        "",
        "syntax = \"proto2\";\nmessage M { optional group G = 1 { required int32 a = 2; } extensions 100 to max; }\n",
        "syntax = 'proto3';\nenum E { option allow_alias = true; A = 0; B = 0x1 [deprecated = true]; }\n",
        "edition = \"2023\";\noption features.(pb.cpp).string_type = VIEW;\n",
        "edition = \"2024\";\nimport option \"x.proto\";\nexport message M {}\nlocal enum E { A = 0; }\n",
        "extend google.protobuf.MethodOptions { string note = 50000; }\noption (note) = { a: \"{\" b: -1 c { d: 'x' 'y' } };\n",
    ] {
        let text = format!(
            "{head}package a . b;\nservice S {{ rpc M(M) returns (M) {{ option idempotency_level = IDEMPOTENT; }} }}\n"
        );
        let want = format!("rpc a.b.S/M: Idempotent at a.proto:{}:17", head.matches('\n').count() + 2);
        assert_eq!(lines(&[("a.proto", &text)]), [want], "{head}");
    }
}

#[test]
fn a_package_may_stand_behind() {
    finds("a.proto", "service S { rpc M(A) returns (B); }\npackage p;\n", "rpc p.S/M: nothing at a.proto:1:17");
}

/// Half of a service would look like a service without its other half.
#[test]
fn what_does_not_parse_is_listed_as_a_whole() {
    let good = "service S { rpc A(B) returns (C) { option idempotency_level = IDEMPOTENT; }\n";
    for (rest, want) in [
        ("rpc Get(A) returns B; }", "2:20: Unparsed, no `(` before a message"),
        ("rpc Get(A); }", "2:11: Unparsed, no `returns` behind what a method takes"),
        ("rpc Get(A) returns (B) }", "2:24: Unparsed, no `;` and no `{` behind a method"),
        ("rpc (A) returns (B); }", "2:5: Unparsed, no name of a method"),
        ("get(A); }", "2:1: Unparsed, nothing that a service has"),
        ("rpc Get(A) returns (B) { idempotency_level = IDEMPOTENT; } }", "2:26: Unparsed, nothing that a method has"),
        ("} }", "2:3: Unparsed, no statement of a `.proto` file"),
        ("/* ", "2:1: Unparsed, a comment that does not end"),
        ("option x = \"\n\"; }", "2:12: Unparsed, a text that does not end"),
        ("", "2:1: Unparsed, the file ends within a service"),
        ("} option x = { ", "2:16: Unparsed, the file ends within a statement"),
        ("{{#rpcs}} }", "2:1: Templated, a template that is filled in elsewhere: audit what it becomes"),
    ] {
        let found = lines(&[("s.proto", &format!("{good}{rest}"))]);
        assert_eq!(found, [format!("left out s.proto:{want}")], "{rest}");
    }
}

#[test]
fn a_level_that_does_not_exist_is_listed() {
    let text = "service S { rpc A(B) returns (C) { option idempotency_level = SAFE; } }\n";
    let want = "
    rpc S/A: nothing at s.proto:1:17
    left out s.proto:1:63: NotUnderstood, idempotency_level: there is no `SAFE`
    ";
    finds("s.proto", text, want);
}

#[test]
fn a_file_without_a_service_is_none_of_these() {
    let found = crate::written::inventory(&[("m.proto", "message M { {{ }")]);
    assert!(found.files.is_empty() && found.left_out.is_empty());
}
