# syntax=docker/dockerfile:1
# The extender: no shell, no package manager, not root. Build from the repository's root:
#   docker build -f manifests/docker/extender.Dockerfile -t tangram/extender:dev .
# Not the slim one: it has the compiler that makes the scoring helper.
FROM python:3.11-bookworm AS build
WORKDIR /build
RUN python -m venv /opt/tangram && /opt/tangram/bin/pip install --no-cache-dir hatchling
COPY pyproject.toml hatch_build.py requirements.lock README.md LICENSE ./
# The lock holds every extra; only what the wheel asks for is installed, at the lock's versions.
RUN sed -e '/^ *--hash/d' -e 's/ *\\$//' requirements.lock > constraints.txt
COPY scoring scoring
COPY extender extender
COPY node_agent node_agent
RUN /opt/tangram/bin/pip install --no-cache-dir --constraint constraints.txt '.[extender]' \
    && /opt/tangram/bin/pip uninstall --yes hatchling pip \
    && /opt/tangram/bin/python -m compileall -q /opt/tangram

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /usr/local /usr/local
COPY --from=build /opt/tangram /opt/tangram
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8270 8271 8272 8273
ENTRYPOINT ["/opt/tangram/bin/python", "-m", "extender"]
