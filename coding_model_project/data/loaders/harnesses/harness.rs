{program}
fn a_test_failed(condition: &str) {
    println!("\na test failed: {}", condition);
    std::process::exit(0);
}
macro_rules! assert {
    ($condition:expr $(, $($said:tt)*)?) => {
        if !$condition { crate::a_test_failed(stringify!($condition)) }
    };
}
macro_rules! assert_eq {
    ($one:expr, $other:expr $(, $($said:tt)*)?) => {
        match (&$one, &$other) {
            (one, other) => if !(*one == *other) {
                crate::a_test_failed(stringify!($one == $other))
            }
        }
    };
}
{tests}
fn main() {
    tests::{name}();
    println!();
    std::io::copy(&mut std::io::stdin(), &mut std::io::stdout()).unwrap();
}
