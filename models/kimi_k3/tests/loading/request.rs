//! Token ids and lengths.

use kimi_k3::Config;
use kimi_k3::code::Code;
use kimi_k3::request::{TokensError, check_tokens, read_tokens};

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

#[test]
fn files_of_token_ids_are_regular_and_lists() {
    let folder = super::folder::Folder::new();
    let read = |bytes: &[u8]| -> Result<Vec<i64>, TokensError> {
        folder.write("ids.json", bytes);
        read_tokens(&folder.path().join("ids.json"))
    };
    assert_eq!(read(b" [0, 5]\n").unwrap(), [0, 5]);
    let long = format!("\"{}\"", "x".repeat(10_000));
    for bytes in [&b"[0, 1.5]"[..], b"{", b"\xff\xfe", b"[\"\xff\"]", b"", long.as_bytes()] {
        let error = read(bytes).unwrap_err();
        assert_eq!(error.code(), Code::K0304);
        assert!(error.to_string().len() < 500, "{error}");
    }
    for path in ["", "absent"] {
        let error = read_tokens(&folder.path().join(path)).unwrap_err();
        assert_eq!(error.code(), Code::K0701);
    }
    // Longer than any list of ids; the file has no blocks on the disk.
    let file = std::fs::File::create(folder.path().join("long.json")).unwrap();
    file.set_len(1 << 40).unwrap();
    let error = read_tokens(&folder.path().join("long.json")).unwrap_err();
    assert_eq!(error.code(), Code::K0701);
    assert!(error.to_string().contains("more than"), "{error}");
}
