--- pad: sample data.
return {
  calls = {
    {x = {3, 4}, padding = {1, 2}}, {x = {3, 4}, padding = {1, 0, 2, 1}, value = 1},
    {x = {3, 4}, padding = {2, 1}, mode = "reflect"},
    {x = {3, 4}, padding = {2, 1, 1, 1}, mode = "replicate"}, {x = {3, 4}, padding = {-1, 0}},
  },
  empty = {{x = {0, 4}, padding = {1, 1}}, {x = {0, 4}, padding = {0, 0, 1, 1}}}, smooth = true,
  large = {x = {317, 300}, padding = {9, 8}},
  expect = {
    {{x = {1, 2, 3}, padding = {2, 1}, mode = "reflect"}, {3, 2, 1, 2, 3, 2}},
    {{x = {1, 2}, padding = {1, 1}}, {0, 1, 2, 0}},
  },
}
