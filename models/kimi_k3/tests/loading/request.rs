//! Token ids and lengths.

use kimi_k3::Config;
use kimi_k3::code::Code;
use kimi_k3::request::check_tokens;

#[test]
fn tokens_are_checked_against_vocabulary_and_context() {
    let config = Config::open(&super::folder::mini()).unwrap();
    assert_eq!(check_tokens(&config, &[0, 2047], 10).unwrap(), [0, 2047]);
    assert_eq!(check_tokens(&config, &[0], 131_071).unwrap(), [0]);
    for (ids, new, code, text) in [
        (vec![], 1, Code::K0301, "empty"),
        (vec![0, 2048], 1, Code::K0302, "token 1 is 2048"),
        (vec![-1], 1, Code::K0302, "token 0 is -1"),
        (vec![0, i64::MAX], 1, Code::K0302, "9223372036854775807"),
        (vec![0], 131_072, Code::K0303, "131072"),
        (vec![0; 131_073], 0, Code::K0303, "131073 tokens"),
        (vec![0], usize::MAX, Code::K0303, "context"),
    ] {
        let error = check_tokens(&config, &ids, new).unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.to_string().contains(text), "{error}");
    }
}
