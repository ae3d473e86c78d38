# Two stages: the first compiles the kernel into a wheel, the second holds what serving needs.
FROM python:3.13-slim-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE CHANGELOG.md ./
COPY src ./src
RUN MILLSTREAM_KERNEL=require pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.13-slim-bookworm
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels millstream \
 && useradd --system --uid 10001 --create-home --home-dir /data --shell /usr/sbin/nologin millstream \
 && chmod 700 /data
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 4222 8222
ENV PYTHONUNBUFFERED=1 MILLSTREAM_DATA_DIR=/data/millstream
# Other machines may connect only once there are credentials: give a configuration file with users,
# or set MILLSTREAM_API_KEYS. Until then the server listens inside the container alone.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8222/healthz', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["millstream"]
CMD ["serve"]
