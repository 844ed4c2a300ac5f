//! For a terminal.

use oneclock_audit::report::Detail;

use super::{audited, coloured, folder, plain, shop};

#[test]
fn the_shop() {
    insta::assert_snapshot!(plain(&audited(&shop()), Detail::Usual));
}

#[test]
fn the_shop_in_full() {
    insta::assert_snapshot!(plain(&audited(&shop()), Detail::Verbose));
}

#[test]
fn the_shop_in_short() {
    insta::assert_snapshot!(plain(&audited(&shop()), Detail::Quiet));
}

#[test]
fn colours_are_all_that_is_stripped() {
    let coloured = coloured(&audited(&shop()), Detail::Usual);
    assert!(coloured.contains("\u{1b}["), "no colours for a terminal");
    assert!(!plain(&audited(&shop()), Detail::Usual).contains('\u{1b}'));
}

/// An empty folder is none without mistakes.
#[test]
fn where_nothing_is_read_that_is_said() {
    let empty = folder(&[("readme.txt", "timeout: 5s")]);
    assert_eq!(
        plain(&audited(empty.path()), Detail::Usual),
        "no file of a known format was found: this says nothing about timeouts\nno errors, no warnings, no notes\n"
    );
}
