--- take: sample data.
return {
  calls = {
    {x = {3, 4}, index = {shape = {5}, below = 12}},
    {x = {3, 4}, index = {shape = {2, 3}, below = 12, negative = true}},
  },
  empty = {{x = {3, 4}, index = {shape = {0, 2}, below = 12}}},
  scalar = {{x = {3}, index = {shape = {}, below = 3}}}, smooth = true,
  large = {x = {317, 317}, index = {shape = {100003}, below = 317 * 317}},
  expect = {{{x = {{5, 6}, {7, 8}}, index = {3, -1}}, {7, 8}}},
}
