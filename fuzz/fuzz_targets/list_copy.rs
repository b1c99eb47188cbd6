#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| headworks_fuzz::list_copy(data));
