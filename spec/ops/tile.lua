--- tile: sample data.
return {
  calls = {{x = {3, 4}, repeats = {2, 1}}, {x = {3}, repeats = {2, 2}}, {x = {2, 3}, repeats = {1, 2, 2}},
    {x = {3, 4}, repeats = {2}}, {x = {2, 3, 2}, repeats = {3, 1}}, {x = {3, 4}, repeats = {}}},
  empty = {{x = {0, 4}, repeats = {2, 2}}, {x = {2}, repeats = {0}}}, scalar = {{x = {}, repeats = {3}}},
  smooth = true,
  large = {x = {317}, repeats = {317}}, expect = {
    {{x = {1, 2}, repeats = {2}}, {1, 2, 1, 2}}, {{x = {{1, 2}, {3, 4}}, repeats = {2}}, {{1, 2, 1, 2}, {3, 4, 3, 4}}},
  },
}
