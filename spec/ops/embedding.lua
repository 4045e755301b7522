--- embedding: sample data.
return {
  calls = {
    {weight = {5, 3}, index = {shape = {4}, below = 5}}, {weight = {5, 3}, index = {shape = {2, 3}, below = 5}},
  },
  empty = {{weight = {5, 3}, index = {shape = {0}, below = 5}}},
  scalar = {{weight = {5, 3}, index = {shape = {}, below = 5}}}, smooth = true,
  large = {weight = {317, 101}, index = {shape = {999}, below = 317}},
  expect = {{{weight = {{1, 2}, {3, 4}}, index = {2, 1, 2}}, {{3, 4}, {1, 2}, {3, 4}}}},
}
