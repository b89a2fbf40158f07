"""The Spark data source `format("oncecast")`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from oncecast.errors import BadOption
from oncecast.spark import sink, source
from oncecast.spark.options import SOURCE, SinkOptions, SourceOptions, parse


class OncecastSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "oncecast"

    def schema(self) -> str:
        headers = parse(SOURCE, self.options)["includeHeaders"]
        columns = source.COLUMNS | (source.HEADERS if headers else {})
        return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())

    def reader(self, schema: StructType) -> source.BatchReader:
        return source.BatchReader(SourceOptions.of(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> source.StreamReader:
        return source.StreamReader(SourceOptions.of(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> sink.BatchWriter:
        return sink.BatchWriter(self._sink(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> sink.StreamWriter:
        return sink.StreamWriter(self._sink(schema, overwrite))

    def _sink(self, schema: StructType, overwrite: bool) -> SinkOptions:
        if overwrite:
            raise BadOption('mode "overwrite" is not supported', 'use "append" or "update"')
        options = SinkOptions.of(self.options)
        sink.check_schema(schema, options)
        return options
