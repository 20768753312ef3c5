# The tool with the extra `parallel`: see docs/how-to/docker.md, also for --shm-size.
FROM python:3.12-slim
COPY . /opt/modular-converter
RUN pip install --no-cache-dir '/opt/modular-converter[parallel]'
WORKDIR /work
CMD ["modular-convert", "--help"]
