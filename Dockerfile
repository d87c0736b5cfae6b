# syntax=docker/dockerfile:1

# Picus as one small image: a release build on Debian 12, run on distroless Debian 12 with the same C library.

FROM docker.io/library/rust:1.95.0-slim-bookworm AS build
WORKDIR /build

# Dependencies first, against empty sources: this layer is built again only when the manifest or the lock file changes.
COPY Cargo.toml Cargo.lock askama.toml ./
RUN mkdir -p src benches tests/it \
    && echo 'fn main() {}' > src/main.rs \
    && cp src/main.rs benches/plan.rs \
    && cp src/main.rs benches/serve.rs \
    && cp src/main.rs tests/it/main.rs \
    && touch src/lib.rs \
    && cargo build --release --locked

# Files keep the time that the checkout gave them, which can lie before the build above: touch what it has seen.
COPY src src
RUN touch src/main.rs src/lib.rs \
    && cargo build --release --locked


FROM gcr.io/distroless/cc-debian12:nonroot

ARG VERSION=0.9.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="picus" \
      org.opencontainers.image.description="Autoscaler for Woodpecker CI agents that respects their labels" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/picus/
COPY --from=build /build/target/release/picus /usr/local/bin/picus

# In a container only others can ask; without PICUS_HTTP_TOKEN they see health and metrics.
ENV PICUS_HTTP_ADDR=0.0.0.0:8080
EXPOSE 8080

# The image's user `nonroot`, as a number, so that Kubernetes can see that it is not root.
USER 65532:65532
HEALTHCHECK --interval=30s --timeout=6s --start-period=60s CMD ["picus", "status", "--healthz"]
ENTRYPOINT ["picus"]
