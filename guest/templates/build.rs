//! Makes the stack small, because every call starts a fresh instance. A guest also works without it, but starts more
//! slowly.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "wasm32") {
        println!("cargo:rustc-link-arg-cdylib=-zstack-size=65536");
    }
}
