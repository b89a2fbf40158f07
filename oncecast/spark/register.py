"""The Spark data source `format("oncecast")`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from oncecast.errors import BadOption
from oncecast.spark import sink, source
from oncecast.spark.options import SinkOptions
from oncecast.spark.source_options import SourceOptions, readable
from oncecast.spark.source_options import schema as schema_of


class OncecastSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "oncecast"

    def schema(self) -> str:
        return ", ".join(f"`{name}` {kind}" for name, kind in schema_of(self.options).items())

    def _columns(self, schema: StructType) -> dict[str, str]:
        """Return the columns of the user's schema, or those that the options select."""
        if not schema.fields:
            return schema_of(self.options)
        return readable({field.name: field.dataType.simpleString() for field in schema.fields})

    def reader(self, schema: StructType) -> source.BatchReader:
        options = SourceOptions.of(self.options, streaming=False)
        return source.BatchReader(options, self._columns(schema))

    def streamReader(self, schema: StructType) -> source.StreamReader:
        options = SourceOptions.of(self.options, streaming=True)
        return source.StreamReader(options, self._columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> sink.BatchWriter:
        return sink.BatchWriter(self._sink(schema, overwrite, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> sink.StreamWriter:
        return sink.StreamWriter(self._sink(schema, overwrite, streaming=True))

    def _sink(self, schema: StructType, overwrite: bool, *, streaming: bool) -> SinkOptions:
        if overwrite:
            raise BadOption('mode "overwrite" is not supported', 'use "append"')
        options = SinkOptions.of(self.options, streaming=streaming)
        sink.check_schema(schema, options)
        return options
