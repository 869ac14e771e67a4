"""Laws: functions of numbers at a point that a compiler has made, with loops and branches."""
