--- gather: sample data.
return {
  calls = {
    {x = {3, 4}, dim = 1, index = {shape = {2, 4}, below = 3}},
    {x = {3, 4}, dim = -1, index = {shape = {3, 6}, below = 4, negative = true}},
    {x = {2, 3, 4}, dim = 2, index = {shape = {2, 5, 3}, below = 3}},
  },
  empty = {{x = {3, 4}, dim = 1, index = {shape = {0, 4}, below = 3}}},
  scalar = {{x = {}, dim = 1, index = {shape = {}, below = 1}}}, smooth = true,
  large = {x = {317, 317}, dim = 2, index = {shape = {317, 317}, below = 317}},
  expect = {{{x = {5, 6, 7}, dim = 1, index = {3, 1, -1}}, {7, 5, 7}}},
}
