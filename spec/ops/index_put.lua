--- index_put: sample data.
return {
  calls = {
    {x = {3, 4}, index = {shape = {5}, below = 12, unique = true}, values = {5}},
    {x = {3, 4}, index = {shape = {2, 3}, below = 12}, values = {3}, accumulate = true},
    {x = {3, 4}, index = {shape = {2}, below = 12, unique = true}, values = {}},
  },
  empty = {{x = {3, 4}, index = {shape = {0, 2}, below = 12}, values = {2}}}, smooth = true, magnitude = 10,
  large = {x = {317, 317}, index = {shape = {100003}, below = 317 * 317}, values = {100003}, accumulate = true},
  expect = {
    {{x = {5, 6, 7}, index = {3, -3}, values = {1, 2}}, {2, 6, 1}},
    {{x = {5, 6, 7}, index = {3, 3}, values = {1, 2}, accumulate = true}, {5, 6, 10}},
  },
}
